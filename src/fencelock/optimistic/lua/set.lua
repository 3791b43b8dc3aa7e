-- Write a register if it has the version that was read.
-- KEYS[1]  the register: a hash of version, value and writer
-- ARGV[1]  the version that was read, 0 if there was no register
-- ARGV[2]  the new value
-- ARGV[3]  a random id of this write, so that its own repetition is recognised
-- Answers the new version, or 0 if the version is another one.
local now = redis.call('HMGET', KEYS[1], 'version', 'writer')
if now[2] == ARGV[3] then
  return tonumber(now[1])
end
local version = tonumber(now[1] or '0')
if version ~= tonumber(ARGV[1]) then
  return 0
end
-- A register that was deleted begins above whatever it has had: at the server's time.
local next = version + 1
if version == 0 then
  local time = redis.call('TIME')
  next = tonumber(time[1]) * 1000000 + tonumber(time[2])
end
redis.call('HSET', KEYS[1], 'version', string.format('%.0f', next), 'value', ARGV[2], 'writer', ARGV[3])
return next
