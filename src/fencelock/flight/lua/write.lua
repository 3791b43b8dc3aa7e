-- Keep what was computed, if the claim is still that of whoever computed it.
-- KEYS     the record, the claim
-- ARGV     whose claim, the record, ms until it goes
-- Answers  1, also if it was kept by an earlier sending of the same; 0 if it was not
if redis.call('GET', KEYS[2]) ~= ARGV[1] then
  return string.sub(redis.call('GET', KEYS[1]) or '', 1, 32) == ARGV[1] and 1 or 0
end
redis.call('DEL', KEYS[2])
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return 1
