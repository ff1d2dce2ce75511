package main

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	lwsapi "sigs.k8s.io/lws/api/leaderworkerset/v1"
	"sigs.k8s.io/lws/pkg/controllers"
	"sigs.k8s.io/lws/pkg/webhooks"
	volcano "volcano.sh/apis/pkg/apis/scheduling/v1beta1"
)

// lws is LeaderWorkerSet with its webhooks: they write on a pod which group it is of.
var lws = part{
	webhooks: 1,
	scheme:   []func(*runtime.Scheme) error{lwsapi.AddToScheme, volcano.AddToScheme},
	setup: func(_ context.Context, manager ctrl.Manager) error {
		if err := controllers.SetupIndexes(manager.GetFieldIndexer()); err != nil {
			return err
		}
		client, scheme := manager.GetClient(), manager.GetScheme()
		recorder := manager.GetEventRecorderFor("leaderworkerset")
		sets := controllers.NewLeaderWorkerSetReconciler(client, scheme, recorder)
		if err := sets.SetupWithManager(manager); err != nil {
			return err
		}
		pods := controllers.NewPodReconciler(client, scheme, recorder, nil)
		if err := pods.SetupWithManager(manager); err != nil {
			return err
		}
		if err := webhooks.SetupLeaderWorkerSetWebhook(manager); err != nil {
			return err
		}
		return webhooks.NewPodWebhook(nil).Setup(manager)
	},
}
