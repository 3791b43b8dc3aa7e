-- Read a register.
-- KEYS[1]  the register
-- Answers version and value; the first is false if there is no register.
return redis.call('HMGET', KEYS[1], 'version', 'value')
