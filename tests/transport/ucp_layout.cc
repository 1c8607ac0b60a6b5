// Our own declarations against UCX's headers, where they are installed.  Compiling it is the test.
#include <ucp/api/ucp.h>

#include <cstddef>

#include "rgpu_common/native/transport/ucx/ucp.h"

namespace ours = rgpu::transport::ucx;

#define SAME(mine, field, theirs, name)                                  \
  static_assert(offsetof(ours::mine, field) == offsetof(theirs, name) && \
                sizeof(static_cast<ours::mine*>(nullptr)->field) ==      \
                    sizeof(static_cast<theirs*>(nullptr)->name))

SAME(Params, field_mask, ucp_params_t, field_mask);
SAME(Params, features, ucp_params_t, features);
SAME(Params, mt_workers_shared, ucp_params_t, mt_workers_shared);
SAME(WorkerParams, thread_mode, ucp_worker_params_t, thread_mode);
SAME(EndpointParams, field_mask, ucp_ep_params_t, field_mask);
SAME(EndpointParams, error_mode, ucp_ep_params_t, err_mode);
SAME(EndpointParams, error_handler, ucp_ep_params_t, err_handler);
SAME(EndpointParams, flags, ucp_ep_params_t, flags);
SAME(EndpointParams, socket_address, ucp_ep_params_t, sockaddr);
SAME(EndpointParams, conn_request, ucp_ep_params_t, conn_request);
SAME(ListenerParams, socket_address, ucp_listener_params_t, sockaddr);
SAME(ListenerParams, conn_handler, ucp_listener_params_t, conn_handler);
SAME(ListenerFacts, address, ucp_listener_attr_t, sockaddr);
SAME(ConnRequestFacts, client, ucp_conn_request_attr_t, client_address);
SAME(RequestParams, field_mask, ucp_request_param_t, op_attr_mask);
SAME(RequestParams, flags, ucp_request_param_t, flags);
SAME(RequestParams, call, ucp_request_param_t, cb);
SAME(RequestParams, user_data, ucp_request_param_t, user_data);

static_assert(sizeof(ours::Status) == sizeof(ucs_status_t));
static_assert(ours::kBusy == UCS_ERR_BUSY && ours::kUnreachable == UCS_ERR_UNREACHABLE);
static_assert(ours::kTimedOut == UCS_ERR_TIMED_OUT && ours::kRejected == UCS_ERR_REJECTED);
static_assert(ours::kNotConnected == UCS_ERR_NOT_CONNECTED);
static_assert(ours::kConnectionReset == UCS_ERR_CONNECTION_RESET);
static_assert(ours::kEndpointTimeout == UCS_ERR_ENDPOINT_TIMEOUT);
static_assert(ours::kLastStatus == UCS_ERR_LAST);
static_assert(ours::kFeatureWakeup == UCP_FEATURE_WAKEUP);
static_assert(ours::kFeatureStream == UCP_FEATURE_STREAM);
static_assert(ours::kThreadSerialized == UCS_THREAD_MODE_SERIALIZED);
static_assert(ours::kErrorModePeer == UCP_ERR_HANDLING_MODE_PEER);
static_assert(ours::kEndpointClientServer == UCP_EP_PARAMS_FLAGS_CLIENT_SERVER);
static_assert(ours::kCloseForce == UCP_EP_CLOSE_FLAG_FORCE);
static_assert(ours::Params::kFeatures == UCP_PARAM_FIELD_FEATURES);
static_assert(ours::Params::kSharedWorkers == UCP_PARAM_FIELD_MT_WORKERS_SHARED);
static_assert(ours::WorkerParams::kThreadMode == UCP_WORKER_PARAM_FIELD_THREAD_MODE);
static_assert(ours::EndpointParams::kErrorMode == UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE);
static_assert(ours::EndpointParams::kErrorHandler == UCP_EP_PARAM_FIELD_ERR_HANDLER);
static_assert(ours::EndpointParams::kSocketAddress == UCP_EP_PARAM_FIELD_SOCK_ADDR);
static_assert(ours::EndpointParams::kFlags == UCP_EP_PARAM_FIELD_FLAGS);
static_assert(ours::EndpointParams::kConnRequest == UCP_EP_PARAM_FIELD_CONN_REQUEST);
static_assert(ours::ListenerParams::kSocketAddress == UCP_LISTENER_PARAM_FIELD_SOCK_ADDR);
static_assert(ours::ListenerParams::kConnHandler == UCP_LISTENER_PARAM_FIELD_CONN_HANDLER);
static_assert(ours::ListenerFacts::kSocketAddress == UCP_LISTENER_ATTR_FIELD_SOCKADDR);
static_assert(ours::ConnRequestFacts::kClientAddress == UCP_CONN_REQUEST_ATTR_FIELD_CLIENT_ADDR);
static_assert(ours::RequestParams::kCallback == UCP_OP_ATTR_FIELD_CALLBACK);
static_assert(ours::RequestParams::kUserData == UCP_OP_ATTR_FIELD_USER_DATA);
static_assert(ours::RequestParams::kFlags == UCP_OP_ATTR_FIELD_FLAGS);
