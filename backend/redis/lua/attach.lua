-- Finds what token holds, and changes nothing.

read()
local h = held(ARGV[1])
if not h then return { 'lost', micros } end
return { 'held', micros, h.f or '0', h.t or 0, h.k or 'detached' }
