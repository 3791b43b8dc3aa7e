-- Move the deadlines of leases that are still held.
--
-- KEYS  the locks
-- ARGV  the ttl of all of them in microseconds, or '' if each has its own; then for each:
--       owner, token and, if it has its own, ttl in microseconds or '' to look only
--       A ttl behind a '=' is exact: the deadline may also move back.
-- Returns how many were renewed and, for each of the others, its place and 1 held and not touched, or 0 lost.
--
-- Times are compared as strings of 16 digits, and written out once for each ttl: there are many leases.
-- For the same reason functions are locals, and as little as possible is cut out of a record.
-- PEXPIRE comes before HSET: it is allowed when the server is out of memory, and after a first write
-- the script may go on, so leases survive that.

local call, sub, byte = redis.call, string.sub, string.byte
local KNOWS = byte('k')

local time = redis.call('TIME')
local drawn = time[1] .. sub('000000' .. time[2], -6)
local now = tonumber(drawn)
local deadlines, lefts = {}, {}
local greater = redis.REDIS_VERSION_NUM ~= nil -- since Redis 7 the server compares by itself

local function keep(key, left)
  if greater then
    call('PEXPIRE', key, left, 'GT')
  elseif call('PTTL', key) < tonumber(left) then
    call('PEXPIRE', key, left)
  end
end

-- An exact ttl may shorten the hash's expiry too: after a crash it would lie there for the ttl that was given up.
-- It lasts until the last deadline in it, and at least a millisecond, or HSET would make a hash that never expires.
local function keep_exactly(key, owner, last)
  local fields = call('HGETALL', key)
  for at = 1, #fields, 2 do
    local deadline = fields[at] ~= owner and string.match(fields[at + 1], '^(%d+) ')
    if deadline and deadline > last then last = deadline end
  end
  call('PEXPIRE', key, string.format('%.0f', math.max(1, math.ceil((last - now) / 1000))))
end

local common = ARGV[1]
local width = common == '' and 3 or 2
local answer, renewed = { 0 }, 0
local function tell(place, what) answer[#answer + 1] = place; answer[#answer + 1] = what end

for place, key in ipairs(KEYS) do
  local first = 2 + (place - 1) * width
  local owner, ttl = ARGV[first], width == 2 and common or ARGV[first + 2]
  local record = call('HGET', key, owner)
  local deadline = record and sub(record, 1, 16) or ''
  if deadline <= drawn or sub(record, 18, 33) ~= ARGV[first + 1] then
    tell(place, 0)
  elseif ttl == '' then
    tell(place, 1)
  else
    local later = deadlines[ttl]
    if not later then
      local exact = string.match(ttl, '^=(%d+)$')
      later = string.format('%016.0f', now + (exact or ttl))
      deadlines[ttl], lefts[ttl] = later, not exact and string.format('%.0f', math.ceil(ttl / 1000))
    end
    if lefts[ttl] then
      keep(key, lefts[ttl])
      -- Never earlier than it was: a late renewal must not cut short what a later extension gave.
      if deadline > later then later = deadline end
    else
      keep_exactly(key, owner, later)
    end
    if byte(record, 52) == KNOWS then
      call('HSET', key, owner, later .. sub(record, 17))
    else
      call('HSET', key, owner, later .. sub(record, 17, 51) .. 'k' .. sub(record, 53))
    end
    renewed = renewed + 1
  end
end
answer[1] = renewed
return answer
