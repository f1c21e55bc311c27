package control

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	apiv1 "gradnic/control/api/v1"
	"gradnic/control/card"
	"gradnic/dataplane"
)

// What the data plane refuses is told over the API as it said it: the job or the port is named once.
func TestRefusalsOfTheDataPlane(t *testing.T) {
	r := newRig(t)
	const name = "refused"
	native := func(change func(*apiv1.JobSpec)) func() error {
		return func() error {
			spec := jobSpec(name, 2)
			spec.Protocol, spec.Native = apiv1.Protocol_PROTOCOL_NATIVE, &apiv1.NativeSpec{}
			change(spec)
			_, err := r.client.InstallJob(t.Context(), &apiv1.InstallJobRequest{Spec: spec})
			return err
		}
	}
	other := jobSpec("other", 2)
	other.Protocol, other.Native = apiv1.Protocol_PROTOCOL_NATIVE, &apiv1.NativeSpec{Number: 7}
	r.install(t, other)
	taken := "install job refused: native number 7 is job other"
	for says, call := range map[string]func() error{
		"install job refused: 5000 elements of int32 are up to ": native(func(s *apiv1.JobSpec) { s.Elements = 5000 }),
		taken: native(func(s *apiv1.JobSpec) { s.Native.Number = 7 }),
		"install job refused: the NIC has no layout": native(func(s *apiv1.JobSpec) { s.Layout = "x" }),
		"install job refused: tags and layouts":      native(func(s *apiv1.JobSpec) { s.Layout, s.Native.Tagged = "x", true }),
		"impair port mem0: reorder hold": func() error {
			_, err := r.client.SetImpairment(t.Context(), &apiv1.SetImpairmentRequest{Port: "mem0",
				Impairment: &apiv1.Impairment{Reorder: 0.1, ReorderHold: durationpb.New(time.Minute)}})
			return err
		},
	} {
		err := call()
		text := status.Convert(err).Message()
		want := codes.InvalidArgument
		if says == taken {
			want = codes.AlreadyExists
		}
		if status.Code(err) != want || !strings.HasPrefix(text, says) || strings.Count(text, name) > 1 || strings.Count(text, "mem0") > 1 {
			t.Errorf("%v, want %v, %q and the name once", err, want, says)
		}
	}
	// The same where the memory of jobs is bounded, and asked for first.
	r.server.Jobs().SetLimits(Limits{Memory: 1 << 30})
	if err := native(func(s *apiv1.JobSpec) { s.Layout, s.Native.Tagged = "x", true })(); status.Code(err) != codes.InvalidArgument ||
		!strings.HasPrefix(status.Convert(err).Message(), "memory of job refused: tags and layouts") {
		t.Errorf("with a bound on memory: %v", err)
	}
	if jobs := r.nic.Jobs(); len(jobs) != 1 {
		t.Errorf("jobs %v", jobs)
	}
}

// Jobs in the kernel and what would have to look at each of their frames exclude each other, whichever came first: the caller can
// take one away, and the code says so.
func TestConflictsInKernel(t *testing.T) {
	r := newBudgetRig(t, Limits{})
	client, _ := serve(t, r.api)
	refused := func(err error, says string) {
		t.Helper()
		if status.Code(err) != codes.FailedPrecondition || !strings.HasPrefix(status.Convert(err).Message(), says) {
			t.Errorf("%v, want %v with %q", err, codes.FailedPrecondition, says)
		}
	}
	install := func() error {
		spec := jobSpec("a", 2)
		spec.InKernel = true
		for i, m := range spec.Members {
			m.Port = fmt.Sprint("p", i)
		}
		_, err := client.InstallJob(t.Context(), &apiv1.InstallJobRequest{Spec: spec})
		return err
	}
	impair := func(loss float64) error {
		_, err := client.SetImpairment(t.Context(), &apiv1.SetImpairmentRequest{Port: "p1", Impairment: &apiv1.Impairment{IngressLoss: loss}})
		return err
	}
	if err := impair(0.1); err != nil {
		t.Fatal(err)
	}
	refused(install(), "install job a: port p1 is impaired")
	if err := impair(0); err != nil {
		t.Fatal(err)
	}
	paced := Limits{Card: &card.Profile{Name: "c", LinkRate: &card.Figure{Value: 1e9}}, Pace: true}
	r.jobs.SetLimits(paced)
	refused(install(), "install job a: the ports have a pace")
	r.jobs.SetLimits(Limits{})
	if err := install(); err != nil {
		t.Fatal(err)
	}
	refused(impair(0.1), "impair port p1: the kernel adds up what the workers of job a send")
	if err := r.nic.SetPace(1e9); !errors.Is(err, dataplane.ErrConflict) {
		t.Errorf("a pace beside it: %v", err)
	}
}
