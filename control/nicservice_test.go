package control

import (
	"bytes"
	"context"
	"log/slog"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	apiv1 "gradnic/control/api/v1"
	"gradnic/dataplane"
)

func TestNICPortsAndLanes(t *testing.T) {
	r := newRig(t)
	r.install(t, jobSpec("alpha", 2))
	nic, err := r.client.GetNIC(t.Context(), &apiv1.GetNICRequest{})
	want := &apiv1.GetNICResponse{Mac: nicMAC.String(), Ipv4: nicIP.String(), Version: "v-test", Ports: 2, Lanes: 1, Jobs: 1}
	if err != nil || !proto.Equal(nic, want) {
		t.Errorf("nic %v, %v, want %v", nic, err, want)
	}
	ports, err := r.client.ListPorts(t.Context(), &apiv1.ListPortsRequest{})
	if err != nil || len(ports.GetPorts()) != 2 {
		t.Fatalf("ports %v, %v", ports, err)
	}
	if p := ports.GetPorts()[1]; p.GetName() != "mem1" || p.GetKind() != "mem" || p.GetIndex() != 1 || p.GetQueues() != 1 || p.GetFunction() != "aggregate" || p.GetImpairment() != nil {
		t.Errorf("port %v", p)
	}
	lanes, err := r.client.ListLanes(t.Context(), &apiv1.ListLanesRequest{})
	if err != nil || len(lanes.GetLanes()) != 1 || lanes.GetLanes()[0].GetCpu() != -1 || lanes.GetLanes()[0].GetFrames().GetTotal() == 0 {
		t.Errorf("lanes %v, %v", lanes, err)
	}
}

func TestCountersAndDrops(t *testing.T) {
	r := newRig(t)
	r.install(t, jobSpec("alpha", 2))
	stranger := frame(t, 9, 0)
	for _, f := range [][]byte{frame(t, 0, 0), frame(t, 0, 0), stranger} {
		if err := r.ports[0].Send(f); err != nil {
			t.Fatal(err)
		}
	}
	var got *apiv1.GetCountersResponse
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
		var err error
		if got, err = r.client.GetCounters(t.Context(), &apiv1.GetCountersRequest{}); err != nil {
			t.Fatal(err)
		}
		if got.GetCounters().GetReceived() == 3 || time.Now().After(deadline) {
			break
		}
	}
	c := got.GetCounters()
	if c.GetReceived() != 3 || c.GetContributed() != 1 || c.GetDuplicates() != 1 || len(c.GetDrops()) != 1 || c.GetDrops()[0].GetCount() != 1 {
		t.Errorf("counters %v", c)
	}
	if got.GetFault() != "" || got.GetTaken() == nil {
		t.Errorf("fault %q, taken %v", got.GetFault(), got.GetTaken())
	}
	f := got.GetFrames()
	if sum := f.GetFree() + f.GetFill() + f.GetTransmit() + f.GetHandoff() + f.GetHeld(); sum != f.GetTotal() || sum == 0 {
		t.Errorf("frames %v", f)
	}
}

func TestImpairments(t *testing.T) {
	r := newRig(t)
	r.install(t, jobSpec("alpha", 1))
	set := func(port string, i *apiv1.Impairment) error {
		_, err := r.client.SetImpairment(t.Context(), &apiv1.SetImpairmentRequest{Port: port, Impairment: i})
		return err
	}
	want := &apiv1.Impairment{
		IngressLoss: 0.25, EgressLoss: 0.5, EgressTogether: true, DropIngress: []uint64{2}, DropEgress: []uint64{7, 9},
		Duplicate: 0.125, Reorder: 0.0625, ReorderBy: 4, ReorderHold: durationpb.New(time.Second), Seed: 42,
	}
	if err := set("mem0", want); err != nil {
		t.Fatal(err)
	}
	shown := func(port int) *apiv1.Impairment {
		ports, err := r.client.ListPorts(t.Context(), &apiv1.ListPortsRequest{})
		if err != nil {
			t.Fatal(err)
		}
		return ports.GetPorts()[port].GetImpairment()
	}
	if got := shown(0); !proto.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := shown(1); got != nil {
		t.Errorf("the other port: %v", got)
	}
	for name, c := range map[string]struct {
		port string
		i    *apiv1.Impairment
		code codes.Code
		says string
	}{
		"no such port":    {"eth9", want, codes.NotFound, "mem0 mem1"},
		"no impairment":   {"mem0", nil, codes.InvalidArgument, "impairment"},
		"loss of 101 %":   {"mem0", &apiv1.Impairment{IngressLoss: 1.01}, codes.InvalidArgument, "ingress_loss"},
		"negative loss":   {"mem0", &apiv1.Impairment{EgressLoss: -0.1}, codes.InvalidArgument, "egress_loss"},
		"loss of NaN":     {"mem0", &apiv1.Impairment{Reorder: math.NaN()}, codes.InvalidArgument, "reorder"},
		"the 0th frame":   {"mem0", &apiv1.Impairment{DropEgress: []uint64{1, 0}}, codes.InvalidArgument, "drop_egress"},
		"a negative hold": {"mem0", &apiv1.Impairment{Reorder: 0.1, ReorderHold: durationpb.New(-1)}, codes.InvalidArgument, "reorder_hold"},
	} {
		err := set(c.port, c.i)
		if status.Code(err) != c.code || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %v with %q", name, err, c.code, c.says)
		}
	}
	if got := shown(0); !proto.Equal(got, want) {
		t.Errorf("a refused call changed the impairment to %v", got)
	}

	// It works: exactly the second frame is lost.
	if err := set("mem0", &apiv1.Impairment{DropIngress: []uint64{2}}); err != nil {
		t.Fatal(err)
	}
	var slots []byte
	for slot := range 3 {
		if err := r.ports[0].Send(frame(t, 0, slot)); err != nil {
			t.Fatal(err)
		}
	}
	buf := make([]byte, 2048)
	for range 2 {
		if _, err := r.ports[0].Recv(buf, time.Now().Add(5*time.Second)); err != nil {
			t.Fatal(err)
		}
		slots = append(slots, buf[49]) // low byte of the pool index
	}
	if !slices.Equal(slots, []byte{0, 2}) {
		t.Errorf("results of slots %v, want 0 and 2", slots)
	}

	if err := set("mem1", want); err != nil {
		t.Fatal(err)
	}
	if _, err := r.client.ClearImpairment(t.Context(), &apiv1.ClearImpairmentRequest{Port: "mem0"}); err != nil {
		t.Fatal(err)
	}
	if shown(0) != nil || shown(1) == nil {
		t.Errorf("after clearing mem0: %v, %v", shown(0), shown(1))
	}
	if _, err := r.client.ClearImpairment(t.Context(), &apiv1.ClearImpairmentRequest{}); err != nil {
		t.Fatal(err)
	}
	if shown(1) != nil {
		t.Errorf("after clearing all: %v", shown(1))
	}
	if _, err := r.client.ClearImpairment(t.Context(), &apiv1.ClearImpairmentRequest{Port: "eth9"}); status.Code(err) != codes.NotFound {
		t.Errorf("no such port: %v", err)
	}
}

func TestHealthAndReflection(t *testing.T) {
	r := newRig(t)
	conn, err := grpc.NewClient("unix://"+r.socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, service := range []string{"", "gradnic.api.v1.JobService", "gradnic.api.v1.NICService"} {
		h, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{Service: service})
		if err != nil || h.GetStatus() != healthpb.HealthCheckResponse_SERVING {
			t.Errorf("health of %q: %v, %v", service, h, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream, err := reflectionpb.NewServerReflectionClient(conn).ServerReflectionInfo(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}}); err != nil {
		t.Fatal(err)
	}
	resp, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range resp.GetListServicesResponse().GetService() {
		names = append(names, s.GetName())
	}
	for _, want := range []string{"gradnic.api.v1.JobService", "gradnic.api.v1.NICService"} {
		if !slices.Contains(names, want) {
			t.Errorf("reflection lists %v, without %s", names, want)
		}
	}
}

// When the NIC stops, what is shown still is, and changes are refused as Unavailable.
func TestStoppedNIC(t *testing.T) {
	r := newRig(t)
	if err := r.nic.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := r.client.GetCounters(t.Context(), &apiv1.GetCountersRequest{}); err != nil {
		t.Errorf("counters: %v", err)
	}
	if _, err := r.client.InstallJob(t.Context(), &apiv1.InstallJobRequest{Spec: jobSpec("a", 2)}); status.Code(err) != codes.Unavailable {
		t.Errorf("install: %v", err)
	}
}

func TestImpairmentInTheLog(t *testing.T) {
	var log bytes.Buffer
	slog.New(slog.NewTextHandler(&log, nil)).Info("impairment set", impairmentWords(dataplane.Impairment{EgressLoss: 0.01, DropIngress: []uint64{3, 5}})...)
	if want := "egress-loss=0.01 drop-ingress=\"[3 5]\"\n"; !strings.HasSuffix(log.String(), want) {
		t.Errorf("%q, want %q", log.String(), want)
	}
	if words := impairmentWords(dataplane.Impairment{}); words != nil {
		t.Errorf("%v of a perfect port", words)
	}
}
