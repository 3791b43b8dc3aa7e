-- Force release: take out the holders, or the one holder or waiter that is named.
--
-- KEYS  1 lock
-- ARGV  1 owner, or '' for all holders
-- Returns the time, then owner and record of each that was taken out. Their clients are told.

local key = KEYS[1]
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local lock = redis.call('HMGET', key, 'queue', 'holders')
local queue, holders = lock[1], tonumber(lock[2])
local broken = {string.format('%016.0f', now)}
if not queue then return broken end

-- include queue.lua

local live = drop_expired()
admit(live[1], '')
for place = ARGV[1] == '' and holders or length(), 1, -1 do
  local owner = owner_at(place)
  if ARGV[1] == '' or ARGV[1] == owner then
    local record = redis.call('HGET', key, owner)
    take_out(place)
    if record and deadline_of(record) > now then
      table.insert(broken, 2, record)
      table.insert(broken, 2, owner)
      redis.pcall('PUBLISH', channel_of(record), 'x' .. owner .. token_of(record))
    end
  end
end
live = holders > 0 and drop_expired() or {}
admit(live[1], '')
save()
return broken
