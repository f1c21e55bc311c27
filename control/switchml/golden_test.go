package switchml

import (
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	pb "gradnic/control/switchml/switchmlproto"
)

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// The bytes of a request as the public client was seen to send it: rank 0 is
// omitted, the MAC begins 02:, field 6 does not exist.
func TestClientBytes(t *testing.T) {
	wire := unhex(t, "08 ee84eba4b3f6a4f618 18 02 20 828080808040 28 8180c851 38 03")
	var got pb.UdpSessionRequest
	if err := (proto.UnmarshalOptions{}).Unmarshal(wire, &got); err != nil {
		t.Fatal(err)
	}
	want := &pb.UdpSessionRequest{
		Rank: 0, NumWorkers: 2,
		Mac: 0x020000000002, Ipv4: 0x0a320001, PacketSize: pb.PacketSize_MTU_1024,
	}
	// The session id, group by group of its varint: ee 84 eb a4 b3 f6 a4 f6 18.
	for i, group := range []uint64{0x6e, 0x04, 0x6b, 0x24, 0x33, 0x76, 0x24, 0x76, 0x18} {
		want.SessionId |= group << (7 * i)
	}
	if !proto.Equal(&got, want) {
		t.Errorf("decoded %v, want %v", &got, want)
	}
	if n := len(got.ProtoReflect().GetUnknown()); n != 0 {
		t.Errorf("%d bytes were not understood", n)
	}
	back, err := proto.MarshalOptions{Deterministic: true}.Marshal(&got)
	if err != nil {
		t.Fatal(err)
	}
	if hex.EncodeToString(back) != hex.EncodeToString(wire) {
		t.Errorf("encodes to %x, was %x", back, wire)
	}
}

// Names and numbers are the clients' and can not change.
func TestFieldNumbers(t *testing.T) {
	want := map[string]string{
		"RdmaSessionRequest":  "1 session_id uint32,2 rank uint32,3 num_workers uint32,4 mac uint64,5 ipv4 uint32,6 rkey uint32,7 packet_size enum,8 message_size uint32,9 qpns uint32[],10 psns uint32[]",
		"RdmaSessionResponse": "1 session_id uint64,2 mac uint64,3 ipv4 uint32,4 rkey uint32,5 qpns uint32[],6 psns uint32[]",
		"UdpSessionRequest":   "1 session_id uint64,2 rank uint32,3 num_workers uint32,4 mac uint64,5 ipv4 uint32,7 packet_size enum",
		"UdpSessionResponse":  "1 session_id uint64,2 mac uint64,3 ipv4 uint32",
		"BarrierRequest":      "1 num_workers uint32",
		"BarrierResponse":     "",
		"BroadcastRequest":    "1 value uint64,2 rank uint32,3 num_workers uint32,4 root uint32",
		"BroadcastResponse":   "1 value uint64",
	}
	file := pb.File_switchml_switchml_proto
	if got := string(file.Package()); got != "switchml_proto" {
		t.Errorf("package %s", got)
	}
	messages := file.Messages()
	if messages.Len() != len(want) {
		t.Errorf("%d messages, want %d", messages.Len(), len(want))
	}
	for i := range messages.Len() {
		m := messages.Get(i)
		var fields []string
		for j := range m.Fields().Len() {
			f := m.Fields().Get(j)
			s := fmt.Sprintf("%d %s %v", f.Number(), f.Name(), f.Kind())
			if f.IsList() {
				s += "[]"
			}
			fields = append(fields, s)
		}
		if got := strings.Join(fields, ","); got != want[string(m.Name())] {
			t.Errorf("%s: %s\nwant %s", m.Name(), got, want[string(m.Name())])
		}
	}
	for _, method := range []string{
		pb.Session_RdmaSession_FullMethodName, pb.Session_UdpSession_FullMethodName,
		pb.Sync_Barrier_FullMethodName, pb.Sync_Broadcast_FullMethodName,
	} {
		if !strings.HasPrefix(method, "/switchml_proto.S") {
			t.Errorf("method %s", method)
		}
	}
	for name, number := range map[string]int32{"MTU_128": 0, "MTU_256": 1, "MTU_512": 2, "MTU_1024": 3} {
		if got, ok := pb.PacketSize_value[name]; !ok || got != number {
			t.Errorf("%s = %d, %v", name, got, ok)
		}
	}
}
