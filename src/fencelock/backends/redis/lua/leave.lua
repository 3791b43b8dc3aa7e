-- Leave the queue, and hand the lock to whoever is next.
--
-- KEYS  1 lock
-- ARGV  1 owner  2 token, or '' for whatever there is of this owner
-- Returns 1 if the request stood there in time, else 0. If it was the only one that is in any case: nobody
-- else was admitted since its grant, or its record would be gone.

local key = KEYS[1]
local lock = redis.call('HMGET', key, 'queue', 'holders', ARGV[1])
local queue, holders, mine = lock[1], tonumber(lock[2]), lock[3]
if not mine or (ARGV[2] ~= '' and string.sub(mine, 18, 33) ~= ARGV[2]) then return 0 end

if queue == ARGV[1] then
  redis.call('DEL', key)
  return 1
end

local time = redis.call('TIME')
local drawn = time[1] .. string.sub('000000' .. time[2], -6)
local there = string.sub(mine, 1, 16) > drawn and 1 or 0

-- The usual case of those that are waited for: one exclusive holder goes, the next comes.
if lock[2] == '1' and string.sub(queue, 1, 32) == ARGV[1] then
  local heir = string.sub(queue, 33, 64)
  local record = redis.call('HGET', key, heir)
  if record and string.sub(record, 53, 53) == 'e' and string.sub(record, 1, 16) > drawn then
    redis.call('HDEL', key, ARGV[1])
    local told = string.sub(record, 1, 34) .. drawn .. string.sub(record, 51)
    redis.call('HSET', key, 'queue', string.sub(queue, 33), heir, told)
    redis.pcall('PUBLISH', string.match(record, '^%d+ (%S+)', 54), 'g' .. heir .. string.sub(record, 18, 33))
    return there
  end
end

local now = tonumber(drawn)

-- include queue.lua

local place = place_of(ARGV[1])
if place then take_out(place) else redis.call('HDEL', key, ARGV[1]) end
local live = holders > 0 and drop_expired() or {}
admit(live[1], '')
save()
return there
