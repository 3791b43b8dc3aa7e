-- Keep locks for longer, and never one that is gone. A lock is kept for shorter only if its holder says so.
-- KEYS  memory, then the locks
-- ARGV  for each lock: owner, milliseconds (0: only look; behind a '=': exactly so many)
-- Answers a list of 1, the owner has it, and 0; or 'left out'.
if redis.call('HEXISTS', KEYS[1], 'member') == 0 then
  return 'left out'
end
local answer = {}
for i = 2, #KEYS do
  local owner, exact, milliseconds = ARGV[2 * i - 3], string.match(ARGV[2 * i - 2], '^(=?)(%d+)$')
  if redis.call('GETRANGE', KEYS[i], 0, 31) ~= owner then
    answer[i - 1] = 0
  else
    answer[i - 1] = 1
    if exact == '=' or tonumber(milliseconds) > redis.call('PTTL', KEYS[i]) then
      redis.call('PEXPIRE', KEYS[i], milliseconds)
    end
  end
end
return answer
