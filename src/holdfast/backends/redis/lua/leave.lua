-- Leave the queue, and hand the lock to whoever is next.
--
-- KEYS  1 lock
-- ARGV  1 owner  2 token, or '' for whatever there is of this owner
-- Returns 1 if the request stood there in time, else 0.

local key = KEYS[1]
local lock = redis.call('HMGET', key, 'queue', 'holders', ARGV[1])
local queue, holders, mine = lock[1], tonumber(lock[2]), lock[3]
if not mine or (ARGV[2] ~= '' and string.sub(mine, 18, 33) ~= ARGV[2]) then return 0 end

local time = redis.call('TIME')
local drawn = time[1] .. string.sub('000000' .. time[2], -6)
local there = string.sub(mine, 1, 16) > drawn and 1 or 0
if queue == ARGV[1] then
  redis.call('DEL', key)
  return there
end
local now = tonumber(drawn)

-- include queue.lua

local place = place_of(ARGV[1])
if place then take_out(place) else redis.call('HDEL', key, ARGV[1]) end
local live = holders > 0 and drop_expired() or {}
admit(live[1], '')
save()
return there
