package control

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	apiv1 "gradnic/control/api/v1"
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
	for says, call := range map[string]func() error{
		"install job refused: 5000 elements of int32 are up to ": native(func(s *apiv1.JobSpec) { s.Elements = 5000 }),
		"install job refused: native number 7 is job other":      native(func(s *apiv1.JobSpec) { s.Native.Number = 7 }),
		"install job refused: the NIC has no layout":             native(func(s *apiv1.JobSpec) { s.Layout = "x" }),
		"install job refused: tags and layouts":                  native(func(s *apiv1.JobSpec) { s.Layout, s.Native.Tagged = "x", true }),
		"impair port mem0: reorder hold": func() error {
			_, err := r.client.SetImpairment(t.Context(), &apiv1.SetImpairmentRequest{Port: "mem0",
				Impairment: &apiv1.Impairment{Reorder: 0.1, ReorderHold: durationpb.New(time.Minute)}})
			return err
		},
	} {
		err := call()
		text := status.Convert(err).Message()
		if status.Code(err) == codes.OK || !strings.HasPrefix(text, says) || strings.Count(text, name) > 1 || strings.Count(text, "mem0") > 1 {
			t.Errorf("%v, want %q and the name once", err, says)
		}
	}
	if jobs := r.nic.Jobs(); len(jobs) != 1 {
		t.Errorf("jobs %v", jobs)
	}
}
