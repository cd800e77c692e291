package prefault

import (
	"reflect"
	"testing"
)

func TestTextHoldsTheCode(t *testing.T) {
	begin, end, ok := text()
	here := reflect.ValueOf(TestTextHoldsTheCode).Pointer()
	if !ok || here < begin || here >= end {
		t.Errorf("text from %#x to %#x, %v; this function is at %#x", begin, end, ok, here)
	}
}

func TestParseRefusesNoise(t *testing.T) {
	for _, maps := range []string{"", "\n", "x", "00-ff r--p 0", "zz-ff r-xp 0", "ff-00 r-xp 0", "00400000 r-xp"} {
		if _, _, ok := parse([]byte(maps)); ok {
			t.Errorf("parse(%q) found code", maps)
		}
	}
}
