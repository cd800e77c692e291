-- Forgets a lock that nobody holds or waits for, its fence included.

local name = ARGV[1]

load()
if S.kind ~= 'free' or waiters > 0 then return { 'busy', micros } end
redis.call('del', QUEUE, PLACES, META, HOLDS)
if INDEX then redis.call('zrem', INDEX, name) end
return { 'done', micros }
