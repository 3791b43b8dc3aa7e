-- Show who has locks.
-- KEYS  memory, then the locks
-- Answers the server's time in microseconds, and for each lock {record, milliseconds left} or {}; or 'left out'.
if redis.call('HEXISTS', KEYS[1], 'member') == 0 then
  return 'left out'
end
local time = redis.call('TIME')
local answer = {time[1] * 1000000 + time[2]}
for i = 2, #KEYS do
  local held = redis.call('GET', KEYS[i])
  answer[i] = held and {held, redis.call('PTTL', KEYS[i])} or {}
end
return answer
