-- Break a lock: whoever has it, or only this owner, is out.
-- KEYS  memory, lock
-- ARGV  owner, or nothing for anybody
-- Answers the server's time in microseconds, and {record, milliseconds left} of who was out, or {}.
local lock, owner = KEYS[2], ARGV[1]
local time = redis.call('TIME')
local answer = {time[1] * 1000000 + time[2], {}}
local held = redis.call('GET', lock)
if held and (owner == '' or string.sub(held, 1, 32) == owner) then
  answer[2] = {held, redis.call('PTTL', lock)}
  redis.call('DEL', lock)
  redis.pcall('PUBLISH', lock, string.sub(held, 1, 32))
end
return answer
