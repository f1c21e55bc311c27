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

func nativeSpec(name string, n *apiv1.NativeSpec) *apiv1.JobSpec {
	return &apiv1.JobSpec{Name: name, Protocol: apiv1.Protocol_PROTOCOL_NATIVE, Workers: 3, Native: n}
}

// A native job gets its defaults and a number; the same again changes nothing, another is refused with what differs.
func TestNativeJobs(t *testing.T) {
	r := newRig(t)
	first := r.install(t, nativeSpec("a", nil)).GetJob()
	n := first.GetSpec().GetNative()
	if first.GetSpec().GetElements() != 360 || n.GetType() != "int32" || n.GetOp() != "sum" || n.GetOrder() != "arrival" || n.GetPolicy() != "propagate" ||
		n.GetNumber() != 1 || n.GetDeadline().AsDuration() != 10*time.Second {
		t.Errorf("%+v", first.GetSpec())
	}
	if s := first.GetNative(); s.GetState() != "forming" || s.GetEpoch() == 0 || len(s.GetRanks()) != 3 {
		t.Errorf("%+v", s)
	}
	second := r.install(t, nativeSpec("b", &apiv1.NativeSpec{
		Type: "bfloat16", Op: "max", Order: "ranked", Policy: "saturate", Multicast: "239.1.2.3", Deadline: durationpb.New(time.Second),
	})).GetJob().GetSpec()
	if n := second.GetNative(); second.GetElements() != 720 || n.GetNumber() != 2 || n.GetMulticast() != "239.1.2.3" || n.GetOp() != "max" || n.GetPolicy() != "saturate" {
		t.Errorf("%+v", second)
	}
	third := r.install(t, nativeSpec("x", &apiv1.NativeSpec{Type: "float32", Codec: "bfp16"})).GetJob().GetSpec()
	if n := third.GetNative(); third.GetElements() != 1344 || n.GetCodec() != "bfp16" || n.GetResultCodec() != "bfp16" {
		t.Errorf("%+v", third)
	}
	fourth := r.install(t, nativeSpec("y", &apiv1.NativeSpec{Type: "float32", Codec: "topk"})).GetJob().GetSpec()
	if n := fourth.GetNative(); fourth.GetElements() != 5984 || n.GetCodec() != "topk" || n.GetResultCodec() != "topk=177" {
		t.Errorf("%+v", fourth)
	}
	for _, s := range []*apiv1.JobSpec{third, fourth} {
		if r.install(t, s).GetCreated() {
			t.Errorf("%s was installed again", s.GetName())
		}
	}
	if r.install(t, nativeSpec("a", nil)).GetCreated() {
		t.Error("the same job was installed again")
	}
	for _, c := range []struct {
		spec *apiv1.JobSpec
		says string
	}{
		{nativeSpec("a", &apiv1.NativeSpec{Type: "int8"}), "elements"},
		{nativeSpec("a", &apiv1.NativeSpec{Order: "ranked"}), "ranked"},
		{nativeSpec("a", &apiv1.NativeSpec{Multicast: "239.1.1.1"}), "multicast"},
		{nativeSpec("c", &apiv1.NativeSpec{Type: "int7"}), "job.native.type"},
		{nativeSpec("c", &apiv1.NativeSpec{Codec: "zip"}), "job.native.codec"},
		{nativeSpec("c", &apiv1.NativeSpec{Type: "float32", ResultCodec: "zip"}), "job.native.result_codec"},
		{nativeSpec("c", &apiv1.NativeSpec{Type: "float32", Codec: "thc"}), "norms"},
		{nativeSpec("c", &apiv1.NativeSpec{Codec: "bfp16"}), "carry float32"},
		{&apiv1.JobSpec{Name: "x", Protocol: apiv1.Protocol_PROTOCOL_NATIVE, Workers: 3, Elements: 1344, Native: &apiv1.NativeSpec{Type: "float32", Codec: "mxint8"}}, "codec bfp16"},
		{nativeSpec("c", &apiv1.NativeSpec{Op: "half"}), "job.native.op"},
		{nativeSpec("c", &apiv1.NativeSpec{Order: "x"}), "job.native.order"},
		{nativeSpec("c", &apiv1.NativeSpec{Policy: "x"}), "job.native.policy"},
		{nativeSpec("c", &apiv1.NativeSpec{Multicast: "10.0.0.1"}), "job.native.multicast"},
		{nativeSpec("c", &apiv1.NativeSpec{Number: 1 << 16}), "job.native.number"},
		{nativeSpec("c", &apiv1.NativeSpec{Number: 2}), "2"},
		{&apiv1.JobSpec{Name: "c", Protocol: apiv1.Protocol_PROTOCOL_NATIVE, Workers: 1025}, "job.workers"},
	} {
		_, err := r.client.InstallJob(t.Context(), &apiv1.InstallJobRequest{Spec: c.spec})
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v: %v, want %q", c.spec, err, c.says)
		}
	}
	// A station may be in several native jobs, and in one of SwitchML.
	with := func(name string) *apiv1.JobSpec {
		s := nativeSpec(name, nil)
		s.Members = []*apiv1.WorkerSpec{member(0), member(1)}
		return s
	}
	r.install(t, with("d"))
	r.install(t, with("e"))
	r.install(t, jobSpec("f", 2))
}

func TestNativeJobFile(t *testing.T) {
	read := func(text string) (*apiv1.JobSpec, error) {
		f, err := ReadJobFile("job.yaml", strings.NewReader(text))
		if err != nil {
			return nil, err
		}
		return f.Proto()
	}
	spec, err := read("name: a\nworkers: 3\nprotocol: native\ntype: float32\norder: ranked\ndeadline: 5s\nmulticast: 239.1.1.1\nnumber: 7\n")
	if n := spec.GetNative(); err != nil || n.GetType() != "float32" || n.GetOrder() != "ranked" || n.GetDeadline().AsDuration() != 5*time.Second || n.GetNumber() != 7 || n.GetMulticast() != "239.1.1.1" {
		t.Errorf("%+v %v", spec, err)
	}
	if _, err := read("name: a\nworkers: 3\norder: ranked\n"); err == nil || !strings.Contains(err.Error(), "native") {
		t.Errorf("order without the protocol: %v", err)
	}
}

// What others have and this NIC does not is Unimplemented, with what there is; what nobody has is a mistake. Workers that
// can not be are refused by name, as in jobs of SwitchML.
func TestNativeRefusesByName(t *testing.T) {
	r := newRig(t)
	for _, c := range []struct {
		native *apiv1.NativeSpec
		change func(*apiv1.JobSpec)
		code   codes.Code
		says   []string
	}{
		{&apiv1.NativeSpec{Op: "prod"}, nil, codes.Unimplemented, []string{"job.native.op", "sum, mean, min, max"}},
		{&apiv1.NativeSpec{Op: "PROD"}, nil, codes.Unimplemented, []string{"job.native.op", "sum, mean, min, max"}},
		{&apiv1.NativeSpec{Op: "land"}, nil, codes.Unimplemented, []string{"job.native.op"}},
		{&apiv1.NativeSpec{Type: "complex64"}, nil, codes.Unimplemented, []string{"job.native.type", "int32", "int64", "int8", "float32", "float64", "float16", "bfloat16"}},
		{&apiv1.NativeSpec{Type: "uint8"}, nil, codes.Unimplemented, []string{"job.native.type", "int8"}},
		{&apiv1.NativeSpec{Type: "int7"}, nil, codes.InvalidArgument, []string{"job.native.type", "int8"}},
		{nil, func(s *apiv1.JobSpec) { s.Members[1].Ipv4 = nicIP.String() }, codes.InvalidArgument, []string{"members[rank 1].ipv4", "NIC's own"}},
		{nil, func(s *apiv1.JobSpec) { s.Members[1].Mac = nicMAC.String() }, codes.InvalidArgument, []string{"members[rank 1].mac", "NIC's own"}},
		{nil, func(s *apiv1.JobSpec) { s.Members[1].Port = "eth9" }, codes.InvalidArgument, []string{"members[rank 1].port", `"eth9"`, "mem0 mem1"}},
		{nil, func(s *apiv1.JobSpec) { s.Members[1].Rank = 0 }, codes.InvalidArgument, []string{"rank 0 is given twice"}},
		{nil, func(s *apiv1.JobSpec) { s.Members[1].Rank = 3 }, codes.InvalidArgument, []string{"members[rank 3].rank"}},
	} {
		spec := nativeSpec("n", c.native)
		spec.Members = []*apiv1.WorkerSpec{member(0), member(1)}
		if c.change != nil {
			c.change(spec)
		}
		_, err := r.client.InstallJob(t.Context(), &apiv1.InstallJobRequest{Spec: spec})
		for _, says := range c.says {
			if status.Code(err) != c.code || !strings.Contains(err.Error(), says) {
				t.Errorf("%v: %v, want %v with %q", spec, err, c.code, says)
			}
		}
		if jobs := r.nic.Jobs(); len(jobs) != 0 {
			t.Fatalf("jobs %v", jobs)
		}
	}
	spec := nativeSpec("n", nil)
	r.install(t, spec)
	for name, change := range map[string]func(*apiv1.WorkerSpec){
		"members that are the NIC": func(w *apiv1.WorkerSpec) { w.Ipv4 = nicIP.String() },
		"on no port":               func(w *apiv1.WorkerSpec) { w.Port = "eth9" },
		"of no rank":               func(w *apiv1.WorkerSpec) { w.Rank = 3 },
	} {
		w := member(1)
		change(w)
		if _, err := r.client.AddWorker(t.Context(), &apiv1.AddWorkerRequest{Job: "n", Worker: w}); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "worker.") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
