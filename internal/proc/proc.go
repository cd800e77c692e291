// Package proc looks at the processes of this host. A process is told from a later
// one with the same number by its start time.
package proc

// Process is one process as the kernel shows it.
type Process struct {
	PID, PPID, PGID int
	Zombie          bool   // dead, and not yet reaped
	Stopped         bool   // by a signal or a debugger
	Start           uint64 // in the kernel's clock ticks after boot
}

// Descendants returns those of list whose chain of parents leads to root, root
// itself excluded; below a process for which leave is true nothing is returned,
// but it is itself.
func Descendants(list []Process, root int, leave func(Process) bool) []Process {
	children := map[int][]Process{}
	for _, p := range list {
		children[p.PPID] = append(children[p.PPID], p)
	}
	var found []Process
	seen := map[int]bool{root: true}
	for queue := []int{root}; len(queue) > 0; queue = queue[1:] {
		for _, c := range children[queue[0]] {
			if seen[c.PID] {
				continue // the list is no snapshot: a number may have been used again
			}
			seen[c.PID] = true
			found = append(found, c)
			if leave == nil || !leave(c) {
				queue = append(queue, c.PID)
			}
		}
	}
	return found
}
