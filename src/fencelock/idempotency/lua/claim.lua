-- Begin an attempt, or say why not.
-- KEYS[1]  the key's hash: name, print, token, done, deadline, tries, result
-- ARGV     name, print, ttl in ms, how long an attempt that did not end is kept, in ms
-- Answers  {'attempt', token, tries}, {'done', result}, {'busy', ms left} or {'changed'}
local time = redis.call('TIME')
local micros = tonumber(time[1]) * 1000000 + tonumber(time[2])
local now = math.floor(micros / 1000)
local old = redis.call('HMGET', KEYS[1], 'print', 'token', 'done', 'deadline', 'tries', 'result')
local tries = 1
local token = micros
if old[1] then
  local over = tonumber(old[4]) <= now
  if not (old[3] == '1' and over) then
    if old[1] ~= ARGV[2] then
      return {'changed'}
    end
    if old[3] == '1' then
      return {'done', old[6]}
    end
    if not over then
      return {'busy', string.format('%.0f', tonumber(old[4]) - now)}
    end
    tries = tonumber(old[5]) + 1
  end
  token = math.max(micros, tonumber(old[2]) + 1)
end
local said = string.format('%.0f', token)
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], 'name', ARGV[1], 'print', ARGV[2], 'token', said, 'done', '0',
  'deadline', string.format('%.0f', now + tonumber(ARGV[3])), 'tries', tostring(tries))
redis.call('PEXPIRE', KEYS[1], string.format('%.0f', tonumber(ARGV[3]) + tonumber(ARGV[4])))
return {'attempt', said, tostring(tries)}
