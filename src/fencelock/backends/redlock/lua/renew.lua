-- Keep locks for longer, never for shorter, and never one that is gone.
-- KEYS  memory, then the locks
-- ARGV  for each lock: owner, milliseconds (0: only look)
-- Answers a list of 1, the owner has it, and 0; or 'left out'.
if redis.call('HEXISTS', KEYS[1], 'member') == 0 then
  return 'left out'
end
local answer = {}
for i = 2, #KEYS do
  local owner, milliseconds = ARGV[2 * i - 3], tonumber(ARGV[2 * i - 2])
  if redis.call('GETRANGE', KEYS[i], 0, 31) ~= owner then
    answer[i - 1] = 0
  else
    answer[i - 1] = 1
    if milliseconds > redis.call('PTTL', KEYS[i]) then
      redis.call('PEXPIRE', KEYS[i], milliseconds)
    end
  end
end
return answer
