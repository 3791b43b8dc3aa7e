-- Look at the node's memory; a node that was restarted may have lost some, and is left out from now on.
-- KEYS  memory
-- ARGV  durable (1: a restart loses nothing), milliseconds for which a node is left out
-- Answers {'member' | 'joining' | 'ripe' | 'blank', run id, milliseconds left, milliseconds since it was founded}.
local memory = KEYS[1]
local run = string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local known = redis.call('HMGET', memory, 'run', 'member', 'joining', 'founded')

if not known[1] then
  return {'blank', run, 0, 0}
end
if known[1] ~= run then
  redis.call('HSET', memory, 'run', run)
  if ARGV[1] ~= '1' then
    known[2], known[3] = false, string.format('%.0f', now + ARGV[2])
    redis.call('HDEL', memory, 'member')
    redis.call('HSET', memory, 'joining', known[3])
  end
end
if known[2] then
  return {'member', run, 0, now - (known[4] or 0)}
end
local left = tonumber(known[3] or '0') - now
return {left > 0 and 'joining' or 'ripe', run, math.max(left, 0), 0}
