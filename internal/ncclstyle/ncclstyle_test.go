package ncclstyle

import (
	"errors"
	"io"
	"math"
	"strings"
	"testing"
	"time"
)

func TestBandwidths(t *testing.T) {
	for _, c := range []struct {
		row      Row
		alg, bus float64
	}{
		{Row{Bytes: 1e9, Ranks: 8, Time: time.Second}, 1, 1.75},
		{Row{Bytes: 1e9, Ranks: 2, Time: time.Second / 2}, 2, 2},
		{Row{Bytes: 1e9, Ranks: 1, Time: time.Second}, 1, 0},
		{Row{Bytes: 1e9, Ranks: 4}, 0, 0},
		{Row{Bytes: 1e9, Time: time.Second}, 1, 0},
	} {
		if a, b := c.row.AlgBW(), c.row.BusBW(); math.Abs(a-c.alg) > 1e-12 || math.Abs(b-c.bus) > 1e-12 {
			t.Errorf("%+v: algbw %v busbw %v, want %v and %v", c.row, a, b, c.alg, c.bus)
		}
	}
}

func TestTable(t *testing.T) {
	var b strings.Builder
	if err := WriteHeader(&b); err != nil {
		t.Fatal(err)
	}
	for _, r := range []Row{
		{763136, 190784, "float", "sum", 8, 12345678 * time.Nanosecond, 0, 0},
		{4, 1, "int32", "sum", 2, 1234 * time.Nanosecond, -1, 0},
		{1 << 30, 1 << 28, "int32", "sum", 2, 250 * time.Microsecond, 3, 0},
	} {
		if err := r.Write(&b); err != nil {
			t.Fatal(err)
		}
	}
	const want = "" +
		"#        size         count      type   redop       time    algbw    busbw  #wrong\n" +
		"#         (B)    (elements)                         (us)   (GB/s)   (GB/s)        \n" +
		"       763136        190784     float     sum      12346     0.06     0.11       0\n" +
		"            4             1     int32     sum       1.23     0.00     0.00     N/A\n" +
		"   1073741824     268435456     int32     sum      250.0  4294.97  4294.97       3\n"
	if got := b.String(); got != want {
		t.Errorf("table:\n%s\nwant:\n%s", got, want)
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestWriteErrors(t *testing.T) {
	if err := WriteHeader(broken{}); !errors.Is(err, io.ErrClosedPipe) {
		t.Error(err)
	}
	if err := (Row{}).Write(broken{}); !errors.Is(err, io.ErrClosedPipe) {
		t.Error(err)
	}
}
