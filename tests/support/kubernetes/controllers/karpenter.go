package main

import (
	kwok "sigs.k8s.io/karpenter/kwok/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/cloudprovider/overlay"
	"sigs.k8s.io/karpenter/pkg/controllers"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/operator"
)

// karpenter makes nodes for pods that lack room and takes away those that nobody needs; its nodes
// are KWOK's.
func karpenter() {
	ctx, op := operator.NewOperator()
	types, err := kwok.ConstructInstanceTypes(ctx)
	if err != nil {
		fatal("karpenter", err)
	}
	bare := kwok.NewCloudProvider(ctx, op.GetClient(), types)
	cloud := overlay.Decorate(bare, op.GetClient(), op.InstanceTypeStore)
	cluster := state.NewCluster(op.Clock, op.GetClient(), cloud)
	all := controllers.NewControllers(ctx, op.Manager, op.Clock, op.GetClient(), op.EventRecorder,
		cloud, bare, cluster, op.InstanceTypeStore)
	op.WithControllers(ctx, all...).Start(ctx)
}
