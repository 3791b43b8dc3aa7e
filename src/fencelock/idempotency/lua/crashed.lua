-- Say whether an attempt did not end.
-- KEYS[1]  the key's hash
-- Answers  {name, tries, ms since its time was over}, or {} if there is nothing to say
local old = redis.call('HMGET', KEYS[1], 'name', 'done', 'deadline', 'tries')
if not old[1] or old[2] == '1' then
  return {}
end
local time = redis.call('TIME')
local since = math.floor((tonumber(time[1]) * 1000000 + tonumber(time[2])) / 1000) - tonumber(old[3])
if since < 0 then
  return {}
end
return {old[1], old[4], string.format('%.0f', since)}
