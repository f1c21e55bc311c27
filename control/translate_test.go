package control

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"gradnic/aggregation"
	apiv1 "gradnic/control/api/v1"
	"gradnic/dataplane"
	"gradnic/wire/inet"
)

// drawJob draws a job that has all that the API can say, as the registry would have it.
func drawJob(t *rapid.T, ports portNames) dataplane.JobSpec {
	small := func(name string, most int) int { return rapid.IntRange(0, most).Draw(t, name) }
	s := dataplane.JobSpec{
		Name:     rapid.StringMatching(`[a-z]{1,8}`).Draw(t, "name"),
		Tenant:   rapid.SampledFrom([]string{"", "team-a"}).Draw(t, "tenant"),
		Protocol: rapid.SampledFrom([]string{dataplane.ProtocolSwitchML, dataplane.ProtocolNative}).Draw(t, "protocol"),
		Workers:  1 + small("workers", dataplane.MaxWorkers-1), Elements: small("elements", 1<<20), Slots: small("slots", 1<<14),
		Layout:   rapid.SampledFrom([]string{"", "inhouse"}).Draw(t, "layout"),
		InKernel: rapid.Bool().Draw(t, "in kernel"),
	}
	for rank := range s.Workers {
		if rapid.Bool().Draw(t, fmt.Sprint("rank ", rank)) {
			s.Members = append(s.Members, dataplane.WorkerSpec{
				Rank: rank, MAC: inet.MAC{2, 0, 0, 0, 1, byte(rank)}, IP: inet.Addr{10, 50, 0, byte(1 + rank)}, Port: small("port", len(ports)) - 1,
			})
		}
	}
	if rapid.Bool().Draw(t, "multicast") {
		s.Multicast = &dataplane.MulticastSpec{IP: inet.Addr{239, 1, 2, byte(small("group", 255))}}
	}
	if s.Protocol == dataplane.ProtocolNative {
		s.Native = &dataplane.NativeSpec{
			ID: uint16(small("number", 1<<16-1)), Type: aggregation.Type(small("type", 6)), Op: aggregation.Op(small("op", 3)),
			Order: aggregation.Order(small("order", 1)), Policy: aggregation.Policy(small("policy", 1)),
			Codec: rapid.SampledFrom([]string{"", "none", "bfp16"}).Draw(t, "codec"), Deadline: time.Duration(small("deadline", 1<<30)),
		}
	}
	return s
}

// What the registry has of a job goes out by the API and comes back the same, and so what a user reads can be installed.
func TestJobsAreTranslatedBothWays(t *testing.T) {
	ports := portNames{"eth1", "eth2"}
	rapid.Check(t, func(t *rapid.T) {
		want := drawJob(t, ports)
		info := JobInfo{JobStatus: dataplane.JobStatus{JobSpec: want, Status: make([]dataplane.WorkerStatus, want.Workers)}}
		for rank := range info.Status {
			info.Status[rank] = dataplane.WorkerStatus{Rank: rank, Port: -1}
		}
		for _, m := range want.Members {
			info.Status[m.Rank] = dataplane.WorkerStatus{Rank: m.Rank, MAC: m.MAC, IP: m.IP, Port: m.Port, Known: true}
		}
		m := jobToProto(info, ports).GetSpec()
		wire, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		var read apiv1.JobSpec
		if err := proto.Unmarshal(wire, &read); err != nil {
			t.Fatal(err)
		}
		got, err := jobSpecFromProto(&read, ports)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got.Members, want.Members) {
			t.Fatalf("members %v, want %v", got.Members, want.Members)
		}
		got.Members, want.Members = nil, nil
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("got  %+v\nwant %+v", got, want)
		}
	})
}
