-- Read queues. Changes nothing.
--
-- KEYS  the locks
-- Returns the time, then for each lock {owner, record, owner, record, …} in order.

local time = redis.call('TIME')
local answers = {string.format('%016.0f', time[1] * 1000000 + time[2])}
for index, key in ipairs(KEYS) do
  local fields = redis.call('HGETALL', key)
  local lock = {}
  for at = 1, #fields, 2 do lock[fields[at]] = fields[at + 1] end
  local found = {}
  if lock.queue then
    for at = 1, #lock.queue, 32 do
      local owner = string.sub(lock.queue, at, at + 31)
      found[#found + 1] = owner
      found[#found + 1] = lock[owner] or ''
    end
  end
  answers[index + 1] = found
end
return answers
