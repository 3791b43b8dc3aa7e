-- Compare, then run what stands between here and tail.lua.
-- The last of KEYS is the fence; the last two of ARGV are the token, and for how many ms to keep it (0: for ever).
-- What comes after sees the KEYS and ARGV that its caller gave.
local fence = table.remove(KEYS)
local keep = table.remove(ARGV)
local token = table.remove(ARGV)
local mark = redis.call('GET', fence)
if mark and not string.match(mark, '^[1-9]%d*$') then
  return redis.error_reply('ERR the fence ' .. fence .. ' is damaged: it holds no token')
end
if mark and (#token < #mark or (#token == #mark and token < mark)) then return {0, mark} end
if keep == '0' then redis.call('SET', fence, token) else redis.call('SET', fence, token, 'PX', keep) end
local function body()
