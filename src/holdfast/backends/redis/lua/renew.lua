-- Move the deadlines of leases that are still held.
--
-- KEYS  the locks
-- ARGV  for each of them: owner, token, ttl in microseconds or '' to look only
-- Returns for each of them: 2 renewed, 1 held and not touched, 0 lost.
--
-- PEXPIRE comes before HSET: it is allowed when the server is out of memory, and after a first write
-- the script may go on, so leases survive that.

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local answers = {}
for index, key in ipairs(KEYS) do
  local owner, token, ttl = ARGV[3 * index - 2], ARGV[3 * index - 1], ARGV[3 * index]
  local record = redis.call('HGET', key, owner)
  local deadline = record and tonumber(string.sub(record, 1, 16))
  if not record or deadline <= now or string.sub(record, 18, 33) ~= token then
    answers[index] = 0
  elseif ttl == '' then
    answers[index] = 1
  else
    local later = math.max(deadline, now + ttl)
    local left = math.ceil((later - now) / 1000)
    if redis.call('PTTL', key) < left then redis.call('PEXPIRE', key, left) end
    redis.call('HSET', key, owner, string.format('%016.0f', later) .. string.sub(record, 17, 51) .. 'k' .. string.sub(record, 53))
    answers[index] = 2
  end
end
return answers
