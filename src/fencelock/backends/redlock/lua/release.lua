-- Give the lock back if it is the owner's, and tell those who wait.
-- KEYS  memory, lock
-- ARGV  bucket, owner, counter (0: none is known), attempt (only what this one or an earlier one took)
-- Answers 1 and one more for each client that listens, or 0 if it was not the owner's.
local memory, lock = KEYS[1], KEYS[2]
local bucket, owner, counter = ARGV[1], ARGV[2], tonumber(ARGV[3])

-- A counter that lags behind is moved along the way, so that the next request finds all alike.
if counter > 0 then
  local known = redis.call('HMGET', memory, 'member', bucket)
  if known[1] and tonumber(known[2] or '0') < counter then
    redis.call('HSET', memory, bucket, ARGV[3], 'w' .. bucket, owner)
  end
end
local held = redis.call('GETRANGE', lock, 0, 79)
if string.sub(held, 1, 32) ~= owner or tonumber(string.sub(held, 65)) > tonumber(ARGV[4]) then
  return 0
end
redis.call('DEL', lock)
local told = redis.pcall('PUBLISH', lock, owner) -- a user who may not publish leaves them to try again
return 1 + (tonumber(told) or 0)
