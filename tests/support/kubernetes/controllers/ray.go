package main

import (
	"context"

	rayconfig "github.com/ray-project/kuberay/ray-operator/apis/config/v1alpha1"
	rayapi "github.com/ray-project/kuberay/ray-operator/apis/ray/v1"
	controllers "github.com/ray-project/kuberay/ray-operator/controllers/ray"
	"github.com/ray-project/kuberay/ray-operator/controllers/ray/batchscheduler"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
)

// ray is KubeRay: RayClusters, and RayJobs and RayServices, of which it makes RayClusters.
var ray = part{
	scheme: []func(*runtime.Scheme) error{rayapi.AddToScheme, rayconfig.AddToScheme},
	setup: func(ctx context.Context, manager ctrl.Manager) error {
		none := rayconfig.Configuration{}
		schedulers, err := batchscheduler.NewSchedulerManager(
			ctx, none, manager.GetConfig(), manager.GetClient())
		if err != nil {
			return err
		}
		clusters := controllers.RayClusterReconcilerOptions{BatchSchedulerManager: schedulers}
		if err := controllers.NewReconciler(ctx, manager, clusters).SetupWithManager(manager, 1); err != nil {
			return err
		}
		jobs := controllers.RayJobReconcilerOptions{BatchSchedulerManager: schedulers}
		if err := controllers.NewRayJobReconciler(ctx, manager, jobs, none).SetupWithManager(manager, 1); err != nil {
			return err
		}
		return controllers.NewRayServiceReconciler(ctx, manager, none).SetupWithManager(manager, 1)
	},
}
