-- Step 1: take the lock if it is free, and move the counter.
-- KEYS  memory, lock
-- ARGV  bucket, owner, milliseconds, attempt, about
-- Answers the counter; or {record, milliseconds left, server's time in microseconds} of who has it;
-- or 'left out'.
local memory, lock = KEYS[1], KEYS[2]
local bucket, owner, milliseconds, attempt = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])

local known = redis.call('HMGET', memory, 'member', bucket)
if not known[1] then
  return 'left out'
end
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local held = redis.call('GET', lock)
if held then
  local left = redis.call('PTTL', lock)
  if string.sub(held, 1, 32) ~= owner then
    return {held, left, now}
  end
  -- Ours already: a step that is taken again, or that comes late, never cuts it short.
  milliseconds = math.max(milliseconds, left)
  attempt = math.max(attempt, tonumber(string.sub(held, 65, 80)))
end
-- A new counter begins at the time of day: should all nodes be wiped, tokens still rise as clocks do.
local counter = known[2] and known[2] + 1 or now
redis.call('HSET', memory, bucket, string.format('%.0f', counter), 'w' .. bucket, owner)
local record = owner .. string.format('%016.0f%016.0f%016.0f', counter, now, attempt) .. ARGV[5]
redis.call('SET', lock, record, 'PX', string.format('%.0f', milliseconds))
return counter
