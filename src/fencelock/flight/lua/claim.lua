-- Claim a key for a computation that begins now, unless its record was replaced since it was looked at.
-- KEYS     the record, the claim
-- ARGV     who wrote the record that was seen ('' if there was none), who claims, ms that a claim is kept
-- Answers  {record, ms until it goes} if it is another one; nothing if the key is claimed
local record = redis.call('GET', KEYS[1])
if record and string.sub(record, 1, 32) ~= ARGV[1] then
  return {record, redis.call('PTTL', KEYS[1])}
end
redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3])
return false
