-- Takes token out of the line and gives back what it holds, whichever it is. A request
-- of it that arrives later finds it withdrawn for tomb ms (0: none can).

local token, tomb = ARGV[1], tonumber(ARGV[2])

load()
local h = held(token)
if h then finish(token, h, 0) end
if redis.call('zscore', QUEUE, token) then drop_waiter(token, waiter(token)) end
if tomb > 0 then redis.call('set', TOMB, '1', 'px', tomb) end
promote()
return { 'done', micros }
