-- Argo CD's health of CompositeControllers and DecoratorControllers: resource.customizations.health of both kinds.
local health = { status = "Progressing", message = "no server has looked at this definition yet" }

-- These last until something else is there, and end by themselves.
local waiting = { Starting = true, ResourceNotFound = true, RightsUnknown = true, Terminating = true }

if obj.status == nil or obj.status.observedGeneration ~= obj.metadata.generation then
  return health
end
for _, condition in ipairs(obj.status.conditions or {}) do
  if condition.type == "Ready" then
    health.message = condition.reason .. ": " .. (condition.message or "")
    if condition.status == "True" then
      health.status = "Healthy"
    elseif condition.reason == "Paused" then
      health.status = "Suspended"
    elseif not waiting[condition.reason] then
      health.status = "Degraded"
    end
  end
end
return health
