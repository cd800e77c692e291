-- Writes back the fence that the holder has been given by the servers together.

local token, fence = ARGV[1], ARGV[2]

load()
local h = held(token)
if not h then return { 'lost', micros } end
touch(META)
if not meta.f or tonumber(fence) > tonumber(meta.f) then redis.call('hset', META, 'f', fence) end
h.f = fence
store_holder(token, h)
return { 'done', micros }
