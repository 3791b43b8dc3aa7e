-- Give a claim up.
-- KEYS     the record, the claim
-- ARGV     whose claim
if redis.call('GET', KEYS[2]) == ARGV[1] then
  return redis.call('DEL', KEYS[2])
end
return 0
