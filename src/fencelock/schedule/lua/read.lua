-- Read a page.
-- KEYS[1]  the page: a hash as optimistic/lua/set.lua writes it
-- Answers version and text (both false if there is no page), and the server's time in microseconds.
local time = redis.call('TIME')
local found = redis.call('HMGET', KEYS[1], 'version', 'value')
return {found[1], found[2], string.format('%.0f', tonumber(time[1]) * 1000000 + tonumber(time[2]))}
