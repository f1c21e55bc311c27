package ncclstyle

import (
	"strings"
	"testing"
	"time"
)

func TestBoth(t *testing.T) {
	var b strings.Builder
	if err := WriteBothHeader(&b); err != nil {
		t.Fatal(err)
	}
	row := Both{Bytes: 1 << 20, Elements: 1 << 18, Type: "float", RedOp: "sum", Ranks: 4}
	row.Ways[1] = &Way{Time: time.Millisecond, P50: 900 * time.Microsecond, Wrong: 0}
	if err := row.Write(&b); err != nil {
		t.Fatal(err)
	}
	row.Ways[0] = &Way{Time: 2 * time.Millisecond, P50: time.Millisecond, P99: 3 * time.Millisecond, Wrong: -1}
	if err := row.Write(&b); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimRight(b.String(), "\n"), "\n")
	if len(lines) != 5 {
		t.Fatalf("%d lines:\n%s", len(lines), b.String())
	}
	for _, l := range lines[1:] {
		if len(l) != len(lines[1]) {
			t.Errorf("columns do not stand under each other:\n%s", b.String())
			break
		}
	}
	if f := strings.Fields(lines[3]); f[4] != "N/A" || f[10] != "1000.0" || f[11] != "1.05" || f[12] != "1.57" || f[13] != "0" || f[15] != "N/A" {
		t.Errorf("%q", f)
	}
	if f := strings.Fields(lines[4]); f[7] != "N/A" || f[9] != "3000.0" {
		t.Errorf("%q", f)
	}
}
