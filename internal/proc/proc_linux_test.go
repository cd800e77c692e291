package proc

import (
	"os"
	"slices"
	"testing"
)

func TestParseStatWithBracketsInTheName(t *testing.T) {
	stat := "42 (a) Z (b c) S 7 42 42 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 987 1 1"
	got, err := parseStat(42, []byte(stat))
	want := Process{PID: 42, PPID: 7, PGID: 42, Start: 987}
	if err != nil || got != want {
		t.Errorf("parseStat = %+v, %v; want %+v", got, err, want)
	}
}

func TestParseStatRefusesNoise(t *testing.T) {
	for _, stat := range []string{"", "42", "42 (x)", "42 (x) S 1 2", "42 (x) S a b 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1"} {
		if _, err := parseStat(42, []byte(stat)); err == nil {
			t.Errorf("parseStat(%q) gave no error", stat)
		}
	}
}

func TestListShowsThisProcess(t *testing.T) {
	list, err := List()
	if err != nil {
		t.Fatal(err)
	}
	self, err := Get(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(list, self) {
		t.Errorf("List lacks %+v", self)
	}
	if self.PPID != os.Getppid() {
		t.Errorf("PPID = %d, want %d", self.PPID, os.Getppid())
	}
}

func TestDescendants(t *testing.T) {
	list := []Process{{PID: 2, PPID: 1}, {PID: 3, PPID: 2}, {PID: 4, PPID: 3}, {PID: 5, PPID: 1}, {PID: 6, PPID: 9}}
	var got []int
	for _, p := range Descendants(list, 1, func(p Process) bool { return p.PID == 3 }) {
		got = append(got, p.PID)
	}
	slices.Sort(got)
	if want := []int{2, 3, 5}; !slices.Equal(got, want) {
		t.Errorf("Descendants = %v, want %v", got, want)
	}
}
