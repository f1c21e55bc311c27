package control

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"google.golang.org/protobuf/types/known/durationpb"

	"gradnic/codec"
	apiv1 "gradnic/control/api/v1"
	"gradnic/dataplane"
)

// This file is what jobs of the native protocol have of their own.

// nativePayload is the bytes of values in a packet of 1500 bytes: less IPv4, UDP and the native header.
const nativePayload = 1500 - 28 - 32

func maxWorkers(protocol string) int {
	if protocol == dataplane.ProtocolNative {
		return dataplane.MaxNativeWorkers
	}
	return dataplane.MaxWorkers
}

// elsewhere are types and operations that other collectives have, in the words of MPI, NCCL and NumPy, and that this NIC
// does not: who asks for one knows what he wants, and is told what there is.
var elsewhere = map[string][]string{
	"type": {
		"complex64", "complex128", "complex", "bool", "uint8", "uint16", "int16", "uint32", "uint64", "float8", "float8_e4m3", "float8_e5m2",
		"fp8", "float128", "longdouble",
	},
	"op": {"prod", "product", "avg", "premulsum", "land", "lor", "lxor", "band", "bor", "bxor", "maxloc", "minloc", "argmax", "argmin", "replace"},
}

func nativeFromProto(spec *dataplane.JobSpec, m *apiv1.NativeSpec) error {
	n := &dataplane.NativeSpec{}
	spec.Native = n
	if m.GetNumber() >= 1<<16 {
		return refuse(Invalid, "job.native.number", "%d: a job has a number from 1 to %d", m.GetNumber(), 1<<16-1)
	}
	n.ID = uint16(m.GetNumber())
	for _, f := range []struct {
		name, value string
		set         func([]byte) error
	}{
		{"type", m.GetType(), n.Type.UnmarshalText}, {"op", m.GetOp(), n.Op.UnmarshalText},
		{"order", m.GetOrder(), n.Order.UnmarshalText}, {"policy", m.GetPolicy(), n.Policy.UnmarshalText},
	} {
		if f.value == "" {
			continue // the first of its names
		}
		if err := f.set([]byte(f.value)); err != nil {
			if slices.Contains(elsewhere[f.name], strings.ToLower(f.value)) {
				return refuse(Unsupported, "job.native."+f.name, "%v", err) // it has those that are supported
			}
			return refuse(Invalid, "job.native."+f.name, "%v", err)
		}
	}
	for _, f := range []struct {
		name, value string
		to          *string
	}{{"codec", m.GetCodec(), &n.Codec}, {"result_codec", m.GetResultCodec(), &n.Result}} {
		if f.value == "" {
			continue
		}
		if _, err := codec.ByName(f.value); err != nil {
			return refuse(Invalid, "job.native."+f.name, "%v", err)
		}
		*f.to = f.value
	}
	if d := m.GetDeadline(); d != nil {
		if err := d.CheckValid(); err != nil {
			return refuse(Invalid, "job.native.deadline", "%v", err)
		}
		n.Deadline = d.AsDuration()
	}
	if m.GetTagged() {
		n.Keys = wantedKeys(spec.Workers)
	}
	var err error
	spec.Multicast, err = groupFromProto("job.native.multicast", m.GetMulticast())
	return err
}

func nativeToProto(m *apiv1.Job, j JobInfo) {
	n := j.Native
	if n == nil {
		return
	}
	m.Spec.Native = &apiv1.NativeSpec{
		Number: uint32(n.ID), Type: n.Type.String(), Op: n.Op.String(), Order: n.Order.String(), Policy: n.Policy.String(),
		Deadline: durationpb.New(n.Deadline), Codec: n.Codec, ResultCodec: n.Result, Tagged: len(n.Keys) > 0,
	}
	if j.Multicast != nil {
		m.Spec.Native.Multicast = j.Multicast.IP.String()
	}
	if s := j.State; s != nil {
		m.Native = &apiv1.NativeState{Epoch: s.Epoch, State: s.State, Ranks: ranksToProto(s.Ranks)}
	}
}

// normalNative fills in the defaults of a native job.
func normalNative(spec *dataplane.JobSpec) {
	n := dataplane.NativeSpec{}
	if spec.Native != nil {
		n = *spec.Native
	}
	if n.Deadline == 0 {
		n.Deadline = dataplane.DefaultDeadline
	}
	spec.Native = &n
	if spec.Elements == 0 {
		spec.Elements = n.FitElements(spec.Workers, nativePayload-n.TagBytes())
	}
	n.NameCodecs(spec.Workers, spec.Elements)
}

// number keeps the number that the data plane gave a native job, so that it has it again after a restart.
func (j *Jobs) number(spec *dataplane.JobSpec) {
	if spec.Native == nil {
		return
	}
	if status, err := j.nic.Job(spec.Name); err == nil && status.Native != nil {
		n := *spec.Native
		n.ID = status.Native.ID
		spec.Native = &n
	}
}

// nativeDifference names what differs of two native jobs. No number means any.
func nativeDifference(was, is dataplane.JobSpec) string {
	if was.Native == nil || is.Native == nil {
		return ""
	}
	a, b := *was.Native, *is.Native
	if len(a.Keys) != len(b.Keys) {
		return fmt.Sprintf("tagged %t, not %t", len(a.Keys) > 0, len(b.Keys) > 0)
	}
	a.Keys, b.Keys = nil, nil // the NIC draws them
	if b.ID == 0 {
		b.ID = a.ID
	}
	if !reflect.DeepEqual(a, b) {
		return fmt.Sprintf("%v %v %v %v, codec %s, results %s, deadline %v, number %d, not %v %v %v %v, %s, %s, %v, %d",
			a.Type, a.Op, a.Order, a.Policy, a.Codec, a.Result, a.Deadline, a.ID, b.Type, b.Op, b.Order, b.Policy, b.Codec, b.Result, b.Deadline, b.ID)
	}
	return ""
}
