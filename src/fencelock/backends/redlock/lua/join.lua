-- Change the standing of a node that does not vote.
-- KEYS  memory
-- ARGV  what, milliseconds for which a node is left out, then buckets and their counters in turn
--   found      a blank node votes from now on
--   leave out  the time of a blank node begins
--   teach      a node whose time is over learns counters, and votes from now on
--   anew       the same, and its counters begin at the time of day at least
-- Answers 1, or 0 if it stood differently.
local memory, what = KEYS[1], ARGV[1]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local known = redis.call('HMGET', memory, 'run', 'member', 'joining')

if what == 'found' or what == 'leave out' then
  if known[1] then
    return 0
  end
  redis.call('HSET', memory, 'run', string.match(redis.call('INFO', 'server'), 'run_id:(%w+)'))
  if what == 'found' then
    redis.call('HSET', memory, 'member', 1, 'founded', string.format('%.0f', now))
  else
    redis.call('HSET', memory, 'joining', string.format('%.0f', now + ARGV[2]))
  end
  return 1
end

if not known[1] or known[2] or tonumber(known[3] or '0') > now then
  return 0
end
local least = what == 'anew' and now * 1000 or 0
for i = 3, #ARGV, 2 do
  local counter = math.max(tonumber(ARGV[i + 1]), least)
  if tonumber(redis.call('HGET', memory, ARGV[i]) or '0') < counter then
    redis.call('HSET', memory, ARGV[i], string.format('%.0f', counter), 'w' .. ARGV[i], '')
  end
end
redis.call('HDEL', memory, 'joining')
redis.call('HSET', memory, 'member', 1)
return 1
