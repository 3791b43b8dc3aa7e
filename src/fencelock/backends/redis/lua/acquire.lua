-- Stand in the queue, and perhaps be admitted.
--
-- KEYS  1 lock  2 the bucket's counter
-- ARGV  1 owner  2 ttl in microseconds  3 the same in milliseconds  4 patience in microseconds
--       5 the rest of the record, from its mode on  6 'wait', or '' to leave nothing behind unless admitted
-- Returns the token; or {token, recheck, owner and record of the first holder, now} if it must wait;
-- or {0, the limit in use} if a semaphore is in use with another limit.
--
-- The token is above the last one of the bucket, and at least the time in microseconds: a server that
-- lost its memory still goes forward. It stays below 2^53 until the year 2255.

--
-- The first parts are for the usual cases, and short: times that are compared or written stay
-- strings of 16 digits, since turning numbers into text costs more than anything else here.

local key, me = KEYS[1], ARGV[1]
local time = redis.call('TIME')
local drawn = time[1] .. string.sub('000000' .. time[2], -6)
local now = tonumber(drawn)

local function draw()
  local last = redis.call('SET', KEYS[2], drawn, 'GET')
  if not last or (#last == 16 and last < drawn) then return drawn end
  last = tonumber(last) or 0
  if last < now then return drawn end
  last = string.format('%016.0f', last + 1)
  redis.call('SET', KEYS[2], last)
  return last
end

local queue = redis.call('HGET', key, 'queue')
if not queue then
  local token = draw()
  local record = string.format('%.0f ', now + ARGV[2]) .. token .. ' ' .. drawn .. ' k' .. ARGV[5]
  redis.call('HSET', key, 'queue', me, 'holders', '1', me, record)
  redis.call('PEXPIRE', key, ARGV[3])
  return tonumber(token)
end

local first = string.sub(queue, 1, 32)
local found = redis.call('HMGET', key, 'holders', me, first)
local holders, mine, head = tonumber(found[1]), found[2], found[3]

-- The same for a newcomer behind one exclusive holder that is there: most of those that must wait.
local mode = string.sub(ARGV[5], 1, 1)
if not mine and head and string.sub(head, 53, 53) == 'e' and string.sub(head, 1, 16) > drawn and mode ~= 'p' then
  local deadline = tonumber(string.sub(head, 1, 16))
  local answer = {0, deadline - now, first, head, drawn}
  if ARGV[6] == 'wait' then
    local token = draw()
    local record = string.format('%.0f ', now + ARGV[4]) .. token .. ' ' .. drawn .. ' w' .. ARGV[5]
    redis.call('HSET', key, 'queue', queue .. me, me, record)
    -- No waiter is waited for longer than three seconds. If the holder has more, so has the hash.
    if deadline < now + 3000000 then redis.call('PEXPIRE', key, '3000') end
    answer[1] = tonumber(token)
  end
  return answer
end

-- include queue.lua

local live, earliest = drop_expired()
if mine and deadline_of(mine) <= now then
  local place = place_of(me)
  if place then take_out(place) end
  mine = false
end
admit(live[1], me)

local place = mine and place_of(me)
if mine and not place then mine = false end

if not mine then
  if mode == 'p' and queue ~= '' then
    local limit = string.match(ARGV[5], '^%d+', 2)
    for _, at in ipairs({1, length()}) do
      local other = redis.call('HGET', key, owner_at(at))
      if other and mode_of(other) == 'p' and limit_of(other) ~= tonumber(limit) then
        save()
        return {0, limit_of(other)}
      end
    end
  end
  if holders == length() then
    -- Nobody waits: join the holders if that fits.
    head = holders > 0 and redis.call('HGET', key, owner_at(1))
    local record = stamp(now + ARGV[2]) .. ' ' .. stamp(0) .. ' ' .. stamp(now) .. ' k' .. ARGV[5]
    if not head or fits(head, record) then
      local token = draw()
      queue, holders = queue .. me, holders + 1
      written[me] = string.sub(record, 1, 17) .. token .. string.sub(record, 34)
      save()
      keep_until(now + ARGV[2])
      return tonumber(token)
    end
  end
elseif place <= holders then
  -- A deadline never moves back once its owner knows: a step that was given up may arrive late.
  local deadline = now + ARGV[2]
  if string.sub(mine, 52, 52) == 'k' then
    written[me] = stamp(math.max(deadline, deadline_of(mine))) .. string.sub(mine, 17)
  else
    written[me] = stamp(deadline) .. string.sub(mine, 17, 34) .. stamp(now) .. ' k' .. string.sub(mine, 53)
  end
  save()
  keep_until(deadline)
  return tonumber(token_of(mine))
end

-- Busy.
head = redis.call('HGET', key, owner_at(1))
local answer = {0, math.ceil(math.min(earliest, deadline_of(head)) - now), owner_at(1), head, stamp(now)}
if ARGV[6] ~= 'wait' then
  if mine then take_out(place) end
  save()
  return answer
end
local deadline = stamp(now + ARGV[4])
if mine then
  written[me] = deadline .. string.sub(mine, 17)
  answer[1] = tonumber(token_of(mine))
else
  local token = draw()
  queue = queue .. me
  written[me] = deadline .. ' ' .. token .. ' ' .. stamp(now) .. ' w' .. ARGV[5]
  answer[1] = tonumber(token)
end
save()
keep_until(now + ARGV[4])
return answer
