-- Step 3: agree on a token, iff the lock is the owner's and nobody else moved the counter so far.
-- KEYS  memory, lock
-- ARGV  bucket, owner, token
-- Answers the token; or the counter as a negative number, for no; or 'left out'.
local memory, lock = KEYS[1], KEYS[2]
local bucket, owner, token = ARGV[1], ARGV[2], tonumber(ARGV[3])

local known = redis.call('HMGET', memory, 'member', bucket, 'w' .. bucket)
if not known[1] then
  return 'left out'
end
local counter = tonumber(known[2] or '0')
if redis.call('GETRANGE', lock, 0, 31) ~= owner then
  return -counter
end
if counter > token or (counter == token and known[3] ~= owner) then
  return -counter
end
if counter < token then
  redis.call('HSET', memory, bucket, ARGV[3], 'w' .. bucket, owner)
end
redis.call('SETRANGE', lock, 32, string.format('%016.0f', token))
return token
