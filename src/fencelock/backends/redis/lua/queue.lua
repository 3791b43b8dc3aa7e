-- The queue rule, for the scripts that include it. The same rule as fencelock/core/queue.py.
--
-- A lock in use is one hash:
--   queue      the owners in order, 32 characters each, holders first
--   holders    how many of them hold the lock
--   <owner>    its record: "deadline token since", 16 digits each, then
--              k (knows that it holds) or w (waits, or was not told yet), e, s or p (its mode),
--              its limit, the channel to tell it on, and JSON for people to read
-- Times are microseconds by this server's clock; the longest ttl, 1e9 seconds, fits into 16 digits until the year
-- 2254. The hash itself expires with its last deadline.
--
-- Expects: key, now, queue, holders.

local WIDTH = 32
local written = {}

local function stamp(number) return string.format('%016.0f', number) end
local function length() return #queue / WIDTH end
local function owner_at(place) return string.sub(queue, (place - 1) * WIDTH + 1, place * WIDTH) end
local function deadline_of(record) return tonumber(string.sub(record, 1, 16)) end
local function token_of(record) return string.sub(record, 18, 33) end
local function mode_of(record) return string.sub(record, 53, 53) end
local function limit_of(record) return tonumber(string.match(record, '^%d+', 54)) end
local function channel_of(record) return string.match(record, '^%d+ (%S+)', 54) end

-- The place of an owner, or nil. Owners are hexadecimal digits, so one might be found across two others.
local function place_of(owner)
  local from = 1
  while true do
    local found = string.find(queue, owner, from, true)
    if not found then return nil end
    if (found - 1) % WIDTH == 0 then return (found - 1) / WIDTH + 1 end
    from = found + 1
  end
end

local function take_out(place)
  local owner = owner_at(place)
  redis.call('HDEL', key, owner)
  written[owner] = nil
  queue = string.sub(queue, 1, (place - 1) * WIDTH) .. string.sub(queue, place * WIDTH + 1)
  if place <= holders then holders = holders - 1 end
end

-- Records of the owners from one place to another: HMGET in pieces, since Lua's stack has an end.
local function records(first, last)
  local found = {}
  for start = first, last, 1000 do
    local owners = {}
    for place = start, math.min(start + 999, last) do owners[#owners + 1] = owner_at(place) end
    for _, record in ipairs(redis.call('HMGET', key, unpack(owners))) do found[#found + 1] = record end
  end
  return found
end

-- Take out holders whose time is over. Returns the records of the others, and their first deadline.
local function drop_expired()
  local live, first = {}, math.huge
  local all = records(1, holders)
  for place = #all, 1, -1 do
    local deadline = all[place] and deadline_of(all[place]) or 0
    if deadline <= now then
      take_out(place)
    else
      table.insert(live, 1, all[place])
      if deadline < first then first = deadline end
    end
  end
  return live, first
end

local function fits(head, record)
  if mode_of(record) ~= mode_of(head) then return false end
  if mode_of(head) == 's' then return true end
  return mode_of(head) == 'p' and holders < limit_of(head)
end

-- Admit whoever is next, as many as fit, and tell them; but not `me`, who is asking.
-- A waiter that is not there any more is passed over. An admitted one keeps the deadline of a waiter
-- until it has answered: if it died meanwhile, the others do not wait for long.
local function admit(head, me)
  while holders < length() do
    local owner = owner_at(holders + 1)
    local record = redis.call('HGET', key, owner)
    if not record or deadline_of(record) <= now then
      take_out(holders + 1)
    elseif holders > 0 and not fits(head, record) then
      return
    else
      if holders == 0 then head = record end
      holders = holders + 1
      if owner ~= me then
        written[owner] = string.sub(record, 1, 34) .. stamp(now) .. string.sub(record, 51)
        -- A user who may not publish harms nobody: whoever is not told looks for itself.
        redis.pcall('PUBLISH', channel_of(record), 'g' .. owner .. token_of(record))
      end
    end
  end
end

-- Write back what has changed; nothing is left of a queue that is empty.
local function save()
  if queue == '' then
    redis.call('DEL', key)
    return
  end
  local fields = {'queue', queue, 'holders', holders}
  for owner, record in pairs(written) do
    fields[#fields + 1] = owner
    fields[#fields + 1] = record
    if #fields > 2000 then
      redis.call('HSET', key, unpack(fields))
      fields = {'queue', queue}
    end
  end
  redis.call('HSET', key, unpack(fields))
end

-- The hash must not expire before its last deadline.
local function keep_until(deadline)
  local left = math.ceil((deadline - now) / 1000)
  if redis.call('PTTL', key) < left then redis.call('PEXPIRE', key, left) end
end
