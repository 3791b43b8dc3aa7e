-- End an attempt with its result, or let it end at another time. Only the last attempt may.
-- KEYS[1]  the key's hash
-- ARGV     token, ms from now, how long it is kept in ms, result ('' for none: it is not done)
-- Answers  'ok', 'gone', 'ended', or the newest token
local old = redis.call('HMGET', KEYS[1], 'token', 'done')
if not old[1] then
  return 'gone'
end
if old[1] ~= ARGV[1] then
  return old[1]
end
if old[2] == '1' then
  return 'ended'
end
local time = redis.call('TIME')
local now = math.floor((tonumber(time[1]) * 1000000 + tonumber(time[2])) / 1000)
redis.call('HSET', KEYS[1], 'deadline', string.format('%.0f', now + tonumber(ARGV[2])))
if ARGV[4] ~= '' then
  redis.call('HSET', KEYS[1], 'done', '1', 'result', ARGV[4])
end
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return 'ok'
