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
