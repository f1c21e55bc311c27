package control

import (
	"context"
	"errors"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	apiv1 "gradnic/control/api/v1"
	"gradnic/dataplane"
)

// forTenants are the calls that tenants may make; all others are for
// administrators, since they show or change what belongs to all.
var forTenants = map[string]bool{
	apiv1.JobService_InstallJob_FullMethodName:  true,
	apiv1.JobService_AddWorker_FullMethodName:   true,
	apiv1.JobService_RenewLease_FullMethodName:  true,
	apiv1.JobService_WatchJobs_FullMethodName:   true,
	apiv1.JobService_RemoveJob_FullMethodName:   true,
	apiv1.JobService_GetJob_FullMethodName:      true,
	apiv1.JobService_ListJobs_FullMethodName:    true,
	apiv1.JobService_ListSlots_FullMethodName:   true,
	apiv1.JobService_ListGroups_FullMethodName:  true,
	apiv1.JobService_ListTenants_FullMethodName: true,
	apiv1.NICService_GetCard_FullMethodName:     true,
	apiv1.NICService_GetNIC_FullMethodName:      true,
	grpc_health_v1.Health_Check_FullMethodName:  true,
	grpc_health_v1.Health_List_FullMethodName:   true,
	grpc_health_v1.Health_Watch_FullMethodName:  true,
}

func callerOf(ctx context.Context) (Caller, error) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return Caller{}, status.Error(codes.Unauthenticated, "nobody knows who calls")
	}
	c, err := callerFrom(p.AuthInfo)
	if err != nil {
		return Caller{}, status.Error(codes.Unauthenticated, err.Error())
	}
	return c, nil
}

func authorize(ctx context.Context, method string) error {
	c, err := callerOf(ctx)
	if err != nil {
		return err
	}
	if !c.Admin && !forTenants[method] {
		return refuse(Denied, "", "%s is for administrators: tenant %s may not call it", method, c.Tenant)
	}
	return nil
}

func authorizeUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if err := authorize(ctx, info.FullMethod); err != nil {
		return nil, err
	}
	return handler(ctx, req)
}

func authorizeStream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	if err := authorize(stream.Context(), info.FullMethod); err != nil {
		return err
	}
	return handler(srv, stream)
}

// sees is true when a job is the caller's to see and change.
func (c Caller) sees(tenant string) bool { return c.Admin || tenant == c.Tenant }

// own sets the tenant of a job: for a tenant it comes from the certificate, whatever
// the request says.
func (c Caller) own(jobs *Jobs, spec *dataplane.JobSpec) error {
	if c.Admin {
		return nil
	}
	if job, err := jobs.Get(spec.Name); err == nil && !c.sees(job.Tenant) {
		return refuse(Exists, "job.name", "the name %s is taken: take another", spec.Name)
	}
	if spec.Tenant != "" && spec.Tenant != c.Tenant {
		return refuse(Denied, "job.tenant", "%q: the certificate is tenant %s's", spec.Tenant, c.Tenant)
	}
	spec.Tenant = c.Tenant
	return nil
}

// pin finds a job for a caller who is to change it, and returns the generation that
// the change must find, so that a job of that name that another tenant installs in
// between is left alone. Jobs of others look as if they were not there.
func (j *Jobs) pin(c Caller, name string, generation uint64) (uint64, error) {
	if c.Admin {
		return generation, nil
	}
	job, err := j.visible(c, name)
	if err != nil {
		return 0, err
	}
	if generation == 0 {
		generation = job.Generation
	}
	return generation, nil
}

func (j *Jobs) visible(c Caller, name string) (JobInfo, error) {
	job, err := j.Get(name)
	if err == nil && !c.sees(job.Tenant) {
		err = fromDataplane("job "+name, errors.Join(dataplane.ErrNoJob))
	}
	if err != nil {
		return JobInfo{}, err
	}
	return job, nil
}

func (j *Jobs) visibleList(c Caller) []JobInfo {
	var list []JobInfo
	for _, job := range j.List() {
		if c.sees(job.Tenant) {
			list = append(list, job)
		}
	}
	return list
}
