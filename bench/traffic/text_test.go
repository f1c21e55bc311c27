package traffic

import (
	"strings"
	"testing"

	"gradnic/dataplane"
)

// What was lost before the device's lanes is said by its cause: each frame is in one count.
func TestDeviceReportLosses(t *testing.T) {
	var r DeviceReport
	r.Port.Kernel = dataplane.KernelStatistics{RxDropped: 1, RxRingFull: 20, FillRingEmpty: 300}
	var b strings.Builder
	if err := r.Write(&b); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), "lost before: 1 too long, 20 ring full, 300 for want of chunks\n") {
		t.Errorf("%s", b.String())
	}
}

// A 99th percentile of a hundred latencies would be one of them: it is not printed.
func TestDeviceReportFewSamples(t *testing.T) {
	for p99, want := range map[float64]string{0: "p50 5.0 us, p99 not from under 1000 samples, max 9.0 us; 100 samples\n", 8: "p50 5.0 us, p99 8.0 us, max"} {
		r := DeviceReport{Pktgen: &dataplane.PktgenSnapshot{Latency: &dataplane.PktgenLatency{Samples: 100, P50: 5, P99: p99, Max: 9}}}
		var b strings.Builder
		if err := r.Write(&b); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in %s", want, b.String())
		}
	}
}
