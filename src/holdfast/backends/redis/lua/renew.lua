-- Move the deadlines of leases that are still held.
--
-- KEYS  the locks
-- ARGV  for each of them: owner, token, ttl in microseconds or '' to look only
-- Returns for each of them: 2 renewed, 1 held and not touched, 0 lost.
--
-- Times are compared as strings of 16 digits, and written out once for each ttl: there are many leases.
-- PEXPIRE comes before HSET: it is allowed when the server is out of memory, and after a first write
-- the script may go on, so leases survive that.

local time = redis.call('TIME')
local drawn = time[1] .. string.sub('000000' .. time[2], -6)
local now = tonumber(drawn)
local deadlines, lefts = {}, {}
local greater = redis.REDIS_VERSION_NUM ~= nil -- since Redis 7 the server compares by itself

local function keep(key, left)
  if greater then
    redis.call('PEXPIRE', key, left, 'GT')
  elseif redis.call('PTTL', key) < tonumber(left) then
    redis.call('PEXPIRE', key, left)
  end
end

local answers = {}
for index, key in ipairs(KEYS) do
  local owner, ttl = ARGV[3 * index - 2], ARGV[3 * index]
  local record = redis.call('HGET', key, owner)
  if not record or string.sub(record, 1, 16) <= drawn or string.sub(record, 18, 33) ~= ARGV[3 * index - 1] then
    answers[index] = 0
  elseif ttl == '' then
    answers[index] = 1
  else
    local later = deadlines[ttl]
    if not later then
      later = string.format('%016.0f', now + ttl)
      deadlines[ttl], lefts[ttl] = later, string.format('%.0f', math.ceil(ttl / 1000))
    end
    keep(key, lefts[ttl])
    -- Never earlier than it was: a late renewal must not cut short what a later extension gave.
    if string.sub(record, 1, 16) > later then later = string.sub(record, 1, 16) end
    redis.call('HSET', key, owner, later .. string.sub(record, 17, 51) .. 'k' .. string.sub(record, 53))
    answers[index] = 2
  end
end
return answers
