package pcapng

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/gopacket/gopacket/pcapgo"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "gradnic/control/api/v1"
)

const (
	rx   = apiv1.CaptureStage_CAPTURE_STAGE_RX
	tx   = apiv1.CaptureStage_CAPTURE_STAGE_TX
	drop = apiv1.CaptureStage_CAPTURE_STAGE_DROP
)

// What is written is read back: interfaces, times to the nanosecond, bytes, directions, comments and losses.
func TestWriter(t *testing.T) {
	var file bytes.Buffer
	w, err := NewWriter(&file, []string{"eth1", "eth2"}, "v1", 64)
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 1, 2, 3, 4, 5, 678901234, time.UTC)
	frames := []*apiv1.CapturedFrame{
		{Time: timestamppb.New(at), Stage: rx, Port: 0, Lane: 3, Length: 300, Data: bytes.Repeat([]byte{1}, 64)},
		{Time: timestamppb.New(at.Add(time.Nanosecond)), Stage: tx, Port: 1, Length: 61, Data: bytes.Repeat([]byte{2}, 61)},
		{Time: timestamppb.New(at), Stage: drop, Port: 1, Lane: 1, Reason: "wrong-size", Length: 1, Data: []byte{3}},
		{Time: timestamppb.New(at), Stage: rx, Port: 1},
	}
	for _, f := range frames {
		if err := w.Frame(f); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Finish([]*apiv1.CaptureLoss{{Port: 1, Stage: tx, Frames: 5}}); err != nil {
		t.Fatal(err)
	}
	stats := map[int]pcapgo.NgInterfaceStatistics{}
	r, err := pcapgo.NewNgReader(&file, pcapgo.NgReaderOptions{StatisticsCallback: func(i int, s pcapgo.NgInterfaceStatistics) { stats[i] = s }})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []struct{ face, comment string }{
		{"eth1:rx", "stage=rx port=eth1 lane=3"}, {"eth2:tx", "stage=tx port=eth2 lane=0"},
		{"eth2:drop", "stage=drop port=eth2 lane=1 reason=wrong-size"}, {"eth2:rx", "stage=rx port=eth2 lane=0"},
	} {
		data, ci, opts, err := r.ReadPacketDataWithOptions()
		if err != nil {
			t.Fatal(err)
		}
		face, err := r.Interface(ci.InterfaceIndex)
		if err != nil {
			t.Fatal(err)
		}
		f := frames[i]
		if face.Name != want.face || len(opts.Comments) != 1 || opts.Comments[0] != want.comment || !bytes.Equal(data, f.GetData()) ||
			ci.Length != int(f.GetLength()) || !ci.Timestamp.Equal(f.GetTime().AsTime()) || (opts.Flags.Direction == pcapgo.NgEpbFlagDirectionOutbound) != (f.GetStage() == tx) {
			t.Errorf("frame %d: %s %v %+v of %d bytes, want %+v", i, face.Name, opts.Comments, ci, len(data), want)
		}
	}
	if _, _, err := r.ReadPacketData(); !errors.Is(err, io.EOF) {
		t.Errorf("%v", err)
	}
	if len(stats) != 6 || stats[4].PacketsReceived != 6 || stats[4].PacketsDropped != 5 || stats[0].PacketsReceived != 1 || stats[0].PacketsDropped != 0 {
		t.Errorf("%+v", stats)
	}
	for _, f := range []*apiv1.CapturedFrame{{Port: 2, Stage: rx}, {}} {
		if err := w.Frame(f); err == nil {
			t.Errorf("%v is taken", f)
		}
	}
	if _, err := NewWriter(&file, nil, "", 0); err == nil {
		t.Error("a file without ports")
	}
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, io.ErrShortWrite }

// A disk that is full is said at once.
func TestFullDisk(t *testing.T) {
	if _, err := NewWriter(fullDisk{}, []string{"a"}, "", 0); !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("%v", err)
	}
}
