-- Look at what is kept for a key.
-- KEYS[1]  the record
-- Answers  {record, ms until it goes}, or nothing
local record = redis.call('GET', KEYS[1])
if not record then
  return false
end
return {record, redis.call('PTTL', KEYS[1])}
