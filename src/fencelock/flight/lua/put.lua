-- Replace a record, or take it away, whoever has the claim: that one cannot be kept any more.
-- KEYS     the record, the claim
-- ARGV     the record, ms until it goes; none to take it away
-- Answers  whether there was one
redis.call('DEL', KEYS[2])
if #ARGV == 0 then
  return redis.call('DEL', KEYS[1])
end
local there = redis.call('EXISTS', KEYS[1])
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return there
